// Package version tells which build of Crawlgate is running.
package version
