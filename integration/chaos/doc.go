// Package chaos tests the binary under load while its dependencies fail: origins, Redis,
// descriptors, the process itself. It has only tests.
package chaos
