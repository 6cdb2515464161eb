// Package signals tests with the binary what pages say beside robots.txt: meta tags, response
// headers, TDM files. It has only tests.
package signals
