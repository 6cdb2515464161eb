// Package pagestyle holds the style sheet and the mark that the gateway's pages and its report
// share. It has no script. A page with the sheet inline loads nothing from anywhere; see [Head] and
// [Policy]. A page that serves the sheet itself sends [CSS].
package pagestyle
