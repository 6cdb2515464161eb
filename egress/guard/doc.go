// Package guard decides which addresses and ports a forward proxy may connect to: public addresses,
// and those that the operator opens, but never a gateway, the admin API or the operator's page of
// its own process.
package guard
