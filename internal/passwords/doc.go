// Package passwords checks passwords against slow hashes, a few at a time. If it checked all at
// once, wrong passwords would take the CPUs from everything else in the process.
package passwords
