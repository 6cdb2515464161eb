package adminapi

import (
	"time"

	"github.com/caddyserver/caddy/v2"
)

// Methods has the routes, for tests that need a gateway.
var Methods = routes

// HandlerOf returns the handler of a path.
func HandlerOf(path string) caddy.AdminHandlerFunc { return handler(routes[path]) }

// CatalogOf returns a catalog that has read the given records.
func CatalogOf(all []CatalogOrigin, at time.Time) *Catalog {
	c := new(Catalog)
	p := &CatalogPage{Origins: all, All: len(all), ReadAt: at}
	p.sort()
	c.read.Store(p)
	return c
}

// Age makes the last attempt to read older than it is.
func Age(c *Catalog, by time.Duration) {
	last := *c.last.Load()
	last.at = last.at.Add(-by)
	c.last.Store(&last)
}

// Wait waits until the reading in progress ends.
func Wait(c *Catalog) { _, _, _ = c.reading.Do("", func() (any, error) { return nil, nil }) }
