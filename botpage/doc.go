// Package botpage is the public site of a crawler: the handler http.handlers.robots_bot. A site's
// owner finds there who runs the crawler, by which keys and addresses it is known, how to say no to
// it, and what it last read of their robots.txt. If the configuration permits it, a form stops the
// crawler at a host whose owner proves that it is theirs. docs/bot-page.md describes it.
//
// Anybody may ask anything here. So an answer tells what is public of one agent, a question causes
// no fetch, and what a form may cause is bounded by address, by host and in all.
package botpage
