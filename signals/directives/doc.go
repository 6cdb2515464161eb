// Package directives reads the X-Robots-Tag field and the robots meta tag, in which a page
// addresses the crawlers that index it, archive it or train on it. No RFC defines the two. The
// sources are Google's guide of 2012, "Controlling Crawling and Indexing", and for later directives
// Google's page on the robots meta tag
// (https://developers.google.com/search/docs/crawling-indexing/robots-meta-tag) and MDN's page on
// X-Robots-Tag (https://developer.mozilla.org/en-US/docs/Web/HTTP/Reference/Headers/X-Robots-Tag).
//
// A directive never forbids a fetch. It obliges the crawler, so this package only reads directives
// and leaves their consequences to its callers.
//
// Everything here is a function of its arguments: no clock, no state, no locks. Names are compared
// without case. The zero [Set] has no directives.
package directives
