// Package memstore keeps robots.txt records in memory, for gateways that keep nothing on disk
// ("store none") and for tests.
package memstore
