// Package fleet tests several gateways together with the binary: stops that all of them follow,
// Redis, HAProxy, containers. It has only tests.
package fleet
