// Package requests tests kinds of requests with the binary: malformed ones, paths, fields, lengths,
// ftp, names of crawlers. It has only tests.
package requests
