// Package linediff compares two texts line by line.
package linediff
