// Package release tests the published files: `make release`, then CRAWLGATE_RELEASE=dist go test
// -tags release ./integration/release. Some tests need root, because they install packages in a
// folder as a system's root.
package release
