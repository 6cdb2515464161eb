// Package audit holds the tests of the binary whose logs the commands audit, simulate and report judge. It has only tests.
package audit
