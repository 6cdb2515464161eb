// Package clients holds the tests that type what docs/clients and the landing page say, and the programs of clients that several
// packages of tests run. It has only tests.
package clients
