// Package fetch retrieves robots.txt files and keeps the history of what came of it.
//
// It has two halves. [Fetcher] makes one retrieval (RFC 9309 section 2.3.1) and
// turns whatever happens into an [Outcome]. [Policy] is the state machine over
// outcomes: [Policy.Next] makes a [Record] from its predecessor, [Policy.Access]
// says what a record permits. The second half does no I/O and reads no clock.
//
// Everything that is not a valid answer is unreachable, which permits nothing:
// that is the zero value of every type here.
package fetch
