// Package fetch retrieves robots.txt files and keeps the history of the retrievals (RFC 9309
// section 2.3.1 and 2.4).
//
// It has two halves. A [Fetcher] makes one retrieval and turns its result into an [Outcome]. A
// [Policy] is the state machine over outcomes: [Policy.Next] makes a [Record] from its
// predecessor, and [Policy.Access] says what a record permits. The second half does no I/O and
// reads no clock.
//
// Everything but a valid answer counts as unreachable, which permits nothing. The zero values are
// as strict: the zero Outcome is a failure, the zero Record and the zero [Access] permit nothing,
// and the zero Policy follows the RFC. The complete table, generated from the code, is
// docs/status-table.md.
//
// "Google's specification" is
// https://developers.google.com/crawling/docs/robots-txt/robots-txt-spec.
package fetch
