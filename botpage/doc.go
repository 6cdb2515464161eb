// Package botpage is the public site of a crawler: the handler http.handlers.robots_bot. The owner of
// a site finds there who runs the crawler, by which keys and addresses it is known, how to say no to
// it, and when it last read their robots.txt. If the configuration permits it, a form stops the
// crawler at a host whose owner proves that it is theirs. docs/bot-page.md describes it.
//
// Anybody may ask anything here. So an answer tells only public facts about one agent, a question
// causes no fetch, and the effects of a form are bounded by address, by host and in all.
package botpage
