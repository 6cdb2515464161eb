// Package robots tests robots.txt with the binary: whole crawls by real crawlers, RFC 9309, hostile
// sites, sitemaps. It has only tests.
package robots
