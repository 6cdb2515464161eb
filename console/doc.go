// Package console is the operator's page: the handler http.handlers.robots_console. It needs its
// own site, because Caddy's admin endpoint answers 403 to browsers. It shows the state of the
// gateway, recent refusals and their reasons, and explains decisions. If the configuration permits
// it, it takes orders from authenticated users. docs/console.md describes it.
//
// The page uses the same functions as the admin API. Except for the records of origins, it reads
// only bounded state in memory. Every text in it may come from a site or a crawler.
package console
