// Package audit replays access logs against the robots.txt texts that a store has kept, and says
// which lines do not follow from them.
//
// It reads logs as docs/access-log.md describes them and trusts none of their fields: verdict,
// rule, line, group and Crawl-delay of each line are computed again from the text that the line
// names by its SHA-256, and from the product tokens and the URL that it records. The text is
// checked against its hash. The other fields of a line must fit together, and the requests to one
// host must be as far apart as the Crawl-delay asks. docs/audit.md has the meaning of each finding,
// the fields that are taken as recorded and the limits of such a proof.
//
// [Run] streams: its memory is bounded whatever the logs hold. Where a bound was met the [Totals]
// say so.
package audit
