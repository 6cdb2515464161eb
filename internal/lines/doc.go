// Package lines reads lines of bounded length from files that may be compressed.
package lines
