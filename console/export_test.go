package console

import (
	"context"
	"net/http"
	"strings"

	"github.com/crawlgate/crawlgate/engine"
)

// Exports for external tests, which import the gateway and therefore this package.
var (
	Span           = span
	AuthorityBadge = authorityBadge
	ChartsOf       = chartsOf
	JournalOf      = journalOf
	TrendText      = trendText
	Ago            = ago
	LeastLeft      = leastLeft
)

// Rendered returns a part of the overview as it is before the records are read.
func Rendered(name string, hour engine.Recent) string {
	var b strings.Builder
	_ = pages.ExecuteTemplate(&b, name, &overview{Hour: hour})
	return b.String()
}

// MaxViewers is maxViewers.
const MaxViewers = maxViewers

// Following returns a page without a server, whose life ends with ctx.
func Following(ctx context.Context) *Handler {
	return &Handler{life: ctx, hosts: []string{"localhost"}, cross: http.NewCrossOriginProtection(), viewers: make(chan struct{}, maxViewers)}
}
