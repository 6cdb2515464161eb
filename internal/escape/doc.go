// Package escape makes text from other parties fit to be shown: bounded, and without characters
// that act on a terminal, a log or a header field. It escapes such characters as \xNN, byte by
// byte.
package escape
