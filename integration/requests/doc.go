// Package requests holds the tests of the binary that concern what a request is: malformed ones, paths, fields, lengths, ftp, names that
// crawlers give themselves. It has only tests.
package requests
