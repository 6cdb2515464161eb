// Package enforce holds the decision on one request: who asks ([Identifier]),
// what the operator says ([Policy], [KillSwitch]), what the site's rules say
// ([Enforcer]), and how a refusal is told to the client ([Render]).
//
// The order of the steps is written in one place, [Enforcer.Decide]. Everything
// but its one look-up of the rules is pure: time, state and input go in, a value
// comes out. What nobody set denies: the zero [Verdict], [Decision], [Identity]
// and [Enforcer] let nothing pass.
//
// The package knows no HTTP server, no log and no metrics. Politeness follows the
// decision and is the caller's (enforce/pace); so is sending (egress). Refusals of
// those steps are put on the same [Decision] by [Decision.Refuse], so that there is
// one set of reasons, one form of refusal and one log object for them all.
package enforce
