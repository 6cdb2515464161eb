// Package docs holds the pages of the documentation, which the gateway serves; see package docsite.
package docs

import "embed"

// Files has the pages, as Markdown, and the pictures that they show.
//
//go:embed *.md clients/*.md problems/*.md images/console-dark.png images/refusal.png images/report.png
var Files embed.FS
