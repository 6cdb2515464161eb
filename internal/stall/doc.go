// Package stall tracks which requests are writing their lines into a log, and for how long. It
// keeps a log that accepts no more lines from holding up the requests that follow.
package stall
