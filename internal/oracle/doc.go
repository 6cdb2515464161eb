// Package oracle is a second robots.txt engine, written to be compared with the text of RFC 9309
// and for nothing else. It shares no code and no idea with package robotstxt, keeps every rule and
// is slow. The tests compare the two.
package oracle
