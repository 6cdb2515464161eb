// Package robots holds the tests of the binary that concern robots.txt: whole crawls by real crawlers, RFC 9309, hostile sites, sitemaps. It has only tests.
package robots
