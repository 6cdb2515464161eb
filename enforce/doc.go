// Package enforce holds the decision on one request: who asks ([Identifier]),
// what the operator says ([Policy], [KillSwitch]), what the site's rules say
// ([Enforcer]), what an allowed request asks of the clocks ([Politeness]), and how
// a refusal is told to the client ([Render]).
//
// The order of the steps is written in one place, [Enforcer.Decide]. Everything
// but its one look-up of the rules is pure: time, state and input go in, a value
// comes out. Zero values deny: the zero [Verdict], [Decision], [Identity] and
// [Enforcer] let nothing pass.
//
// The package knows no HTTP server, no log and no metrics. After the decision the
// caller waits for a slot (enforce/pace) and sends the request (egress). Refusals of
// those steps are put on the same [Decision] by [Decision.RefuseSlot] and
// [Decision.Refuse], so that there is one set of reasons, one form of refusal and
// one log object for them all.
package enforce
