// Package botpage is the public site of a crawler: the handler http.handlers.robots_bot. It tells
// the owner of a site who runs the crawler, which keys and addresses identify it, how to refuse it,
// and when it last read their robots.txt. If the configuration permits it, owners can stop the
// crawler at their host by a form, with a proof that the host is theirs. docs/bot-page.md describes
// it.
//
// The site is open to everyone. So an answer has only public facts about one agent, a question
// causes no fetch, and the effects of a form are bounded per address, per host and in total.
package botpage
