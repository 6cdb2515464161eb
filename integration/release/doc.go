// Package release tests the published files: `make release`, then
// CRAWLGATE_RELEASE=dist go test -tags release ./integration/release. It wants root, since it
// installs packages into folders that it makes a system's root.
package release
