// Package preferences says in one normal form what sites say their content may be used for:
// Content-Usage of the IETF's AIPREF group, Content-Signal, TDMRep, RSL's licences, and the robots
// directives that speak of a use. For each purpose there is n, y or nothing, each with its source
// and line.
//
// All of it is pure: text, fields and a target in, a [Set] out. Which purposes an agent has, and
// what comes of a preference, is for others to say. A preference never opens what Disallow closes.
package preferences
