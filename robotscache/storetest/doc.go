// Package storetest is the test suite that every [robotscache.Store] must pass. The tests of a
// store call [Run].
package storetest
