// Package pace holds the tests of the binary that concern politeness: rates, Crawl-delay, back-off, and clocks that several gateways share. It has only tests.
package pace
