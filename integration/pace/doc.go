// Package pace tests politeness with the binary: rates, Crawl-delay, back-off, and clocks that
// several gateways share. It has only tests.
package pace
