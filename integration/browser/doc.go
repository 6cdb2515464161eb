// Package browser tests pages of the gateway in Chromium. The tests of the console have the build
// tag browser. It has only tests.
package browser
