// Package chaos holds the tests that drive the real binary under load while its dependencies fail: origins, Redis,
// descriptors, itself. It has only tests.
package chaos
