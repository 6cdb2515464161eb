// Package audit replays access logs against the robots.txt texts that a store has kept, and says
// which lines do not follow from them.
//
// It reads logs as docs/access-log.md describes them and trusts none of their fields. It recomputes
// verdict, rule, line, group and Crawl-delay of each line from the text that the line names by its
// SHA-256, and from the product tokens and the URL that it records, and checks the text against its
// hash. The other fields of a line must be consistent, and requests to one host must be as far
// apart as the Crawl-delay asks. docs/audit.md explains each finding, which fields are taken as
// recorded, and what such an audit cannot prove.
//
// [Run] streams: its memory is bounded, whatever the logs contain. If a bound was exceeded, the
// [Totals] say so.
//
// Package report sums up the same logs, and package simulate decides their lines under another
// policy. Both read lines with [Read], so all three share the history of robots.txt files
// ([Line.Then]) and the gaps between requests ([Gaps]).
package audit
