// Package identity holds the tests of the binary that concern what requests say of their crawler: User-Agent, From, signatures. It has only tests.
package identity
