// Package access holds the tests of the binary that say who may use the gateway and what nobody reaches through it: clients,
// passwords, limits, private addresses, the process's own listeners. It has only tests.
package access
