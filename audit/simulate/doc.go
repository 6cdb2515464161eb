// Package simulate decides the requests of access logs once more, under another policy, by the code
// that enforces policies: [enforce.Identifier], [enforce.Enforcer] and [enforce.Politeness].
//
// A line does not have all that a gateway knew. What cannot be computed of it is said to be so
// ([Cause]) and never guessed. docs/simulate.md has what is computed, from what, and what is taken
// as it was.
package simulate
