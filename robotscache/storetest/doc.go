// Package storetest is the test suite that every [robotscache.Store] must pass. A store calls [Run]
// in its own tests.
package storetest
