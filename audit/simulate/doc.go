// Package simulate decides the requests of access logs again, under another policy. It uses the
// code of the gateway: [enforce.Identifier], [enforce.Enforcer] and [enforce.Politeness].
//
// A line does not record everything that the gateway knew. What cannot be computed from it gets a
// [Uncomputed] and is never guessed. docs/simulate.md says which parts are computed, and which are
// taken from the line.
package simulate
