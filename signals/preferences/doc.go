// Package preferences reads how sites permit their content to be used, in one normal form:
// Content-Usage of the IETF's AIPREF group (draft-ietf-aipref-vocab, draft-ietf-aipref-attach),
// Content-Signal (https://contentsignals.org), TDMRep
// (https://www.w3.org/community/reports/tdmrep/CG-FINAL-tdmrep-20240510/), the licences of RSL
// (https://rslstandard.org/rsl), and the robots directives about a use. Each purpose has n, y or no
// statement, each with its source and line.
//
// Everything is pure: text, fields and a target go in, and a [Set] comes out. The zero Set has no
// statements. Callers know the purposes of an agent and decide the consequences of a preference. A
// preference never permits what Disallow forbids.
package preferences
