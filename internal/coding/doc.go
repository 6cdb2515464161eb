// Package coding decodes the content codings of HTTP (RFC 9110 section 8.4.1): gzip, deflate, br
// and zstd. One decoder needs some 8 MiB at most, whatever the coded data asks for; only
// [NewLenientReader] takes br with windows of up to 16 MiB. Callers bound the decoded bytes and the
// number of decoders.
package coding
