// Package chaos holds the tests that drive the real binary under load while what it needs fails: origins, Redis,
// descriptors, itself. It has no code of its own besides the tests.
package chaos
