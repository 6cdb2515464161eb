// Package fleet holds the tests of the binary that concern several gateways: stops that all of them follow, Redis, HAProxy, containers. It has only tests.
package fleet
