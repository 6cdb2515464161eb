// Package release holds what is published against what it has to be: `make release`, then
// CRAWLGATE_RELEASE=dist go test -tags release ./integration/release. It wants root, since it
// installs packages into folders that it makes a system's root.
package release
