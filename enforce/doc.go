// Package enforce decides whether a request may go. It identifies the sender ([Identifier]),
// applies the operator's policy ([Policy], [Stops]) and the site's rules ([Enforcer]),
// computes the limits of an allowed request ([Politeness]), and renders a refusal for the client
// ([Render]).
//
// The order of the steps is in one place, [Enforcer.Decide]. Everything is pure, except one lookup
// of the rules: time, state and input go in, and a value comes out. Zero values deny: the zero
// [Decision], [Identity] and [Enforcer] let nothing pass.
//
// The package knows no HTTP server, no log and no metrics. After the decision the caller waits for
// a slot (pace) and sends the request (egress). [Decision.RefuseSlot] and [Decision.Refuse] put
// the refusals of those steps on the same [Decision], so there is one set of reasons, one form of
// refusal and one log object for all of them.
package enforce
