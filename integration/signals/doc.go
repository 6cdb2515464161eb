// Package signals holds the tests of the binary that concern what pages say beside robots.txt: meta tags, response headers, TDM files. It has only tests.
package signals
