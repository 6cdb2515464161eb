// Package access tests with the binary who may use the gateway, and which addresses are out of reach through it: clients,
// passwords, limits, private addresses, the process's own listeners. It has only tests.
package access
