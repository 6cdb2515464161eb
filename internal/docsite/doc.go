// Package docsite serves the documentation of the running version under [Root], with a search. The
// pages are in the binary. A page asks for nothing outside of it and has no script, and nothing in
// it is secret.
package docsite
