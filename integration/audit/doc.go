// Package audit tests the commands audit, simulate and report with logs that the binary wrote. It
// has only tests.
package audit
