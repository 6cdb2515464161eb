// Package clients tests the commands of docs/clients and of the landing page with real clients. It
// has only tests, and the client programs of several test packages.
package clients
