// Package browser holds the tests that look at pages of the gateway in Chromium. That of the console has the build tag browser. It has only tests.
package browser
