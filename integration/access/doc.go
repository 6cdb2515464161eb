// Package access tests with the binary who may use the gateway, and which addresses the gateway
// refuses to reach: clients, passwords, limits, private addresses, the process's own listeners. It
// has only tests.
package access
