package adminapi

import (
	"time"

	"github.com/caddyserver/caddy/v2"
)

// Methods are the routes, for the tests that need a gateway.
var Methods = routes

// HandlerOf answers for a path.
func HandlerOf(path string) caddy.AdminHandlerFunc { return handler(routes[path]) }

// CatalogOf is a catalog that has read the given records.
func CatalogOf(all []CatalogOrigin, at time.Time) *Catalog {
	c := new(Catalog)
	c.read.Store(&CatalogPage{Origins: all, All: len(all), ReadAt: at})
	return c
}

// Age makes the last reading older.
func Age(c *Catalog, by time.Duration) {
	p := *c.read.Load()
	p.ReadAt = p.ReadAt.Add(-by)
	c.read.Store(&p)
}

// Wait waits for the end of a reading.
func Wait(c *Catalog) { _, _, _ = c.reading.Do("", func() (any, error) { return nil, nil }) }
