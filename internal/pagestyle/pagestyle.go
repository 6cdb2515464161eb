package pagestyle

import (
	"crypto/sha256"
	_ "embed" // for style.css
	"encoding/base64"
	"regexp"
	"strings"
)

//go:embed style.css
var sheet string

// CSS is the style sheet, without its comments and indentation. The top of style.css lists the
// classes.
var CSS = strings.TrimSpace(regexp.MustCompile(`(?s)/\*.*?\*/|(?m)^\s+`).ReplaceAllString(sheet, ""))

// Mark is the gateway's mark, a gate with its bar down, for the text of a page: it has the colour
// of its class. Screen readers skip it, because the name is next to it.
const Mark = `<svg viewBox="0 0 20 20" aria-hidden="true" focusable="false"><path fill="currentColor" d="` + drawing + `"/></svg>`

// Icon is the mark as a data URI, for <link rel="icon">. Its colour shows on light and dark tabs.
const Icon = `data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 20 20'%3E` +
	`%3Cpath fill='%231f8f8f' d='` + drawing + `'/%3E%3C/svg%3E`

const drawing = "M1 2h4v16H1zM15 2h4v16h-4zM6 8h3v4H6zM10 8h4v4h-4z"

// Brand is the mark with the gateway's name.
const Brand = `<span class="brand">` + Mark + `Crawlgate</span>`

// Head goes into the head of a page that must not load anything else: the icon, the width for
// narrow screens, the sheet.
var Head = `<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="` + Icon + `">
<style>` + CSS + `</style>`

// Policy is the Content-Security-Policy of a page with [Head]. It allows the page's own style and
// images in the text, and nothing else. No script runs and no form is sent.
var Policy = "default-src 'none'; img-src data:; style-src " + Source(CSS) +
	"; base-uri 'none'; form-action 'none'"

// Source returns the hash by which a Content-Security-Policy allows an inline style or script.
func Source(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
