// Package browser holds the tests that look at pages of the gateway in Chromium. The console's has the build tag browser. It has only tests.
package browser
