// Package htmlhead finds in the beginning of an HTML page the tags that address crawlers: the
// robots meta tag (https://developers.google.com/search/docs/crawling-indexing/robots-meta-tag),
// the meta tags of TDMRep (https://www.w3.org/community/reports/tdmrep/CG-FINAL-tdmrep-20240510/),
// and the link to a licence of RSL (https://rslstandard.org/rsl).
//
// It works on a bounded copy of a body, which a [Collector] keeps while the bytes pass through.
// [Decode] undoes the content coding of the copy and [Scan] finds the tags. A page that could not
// be read completely is reported as cut; nothing here returns an error. The zero [Metas] has no
// tags, and the zero [Collector] keeps nothing.
package htmlhead
