// Package identity tests with the binary how requests identify their crawler: User-Agent, From,
// signatures. It has only tests.
package identity
