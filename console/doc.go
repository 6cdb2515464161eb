// Package console is the operator's page: the handler http.handlers.robots_console, in a site of
// its own, because Caddy's admin endpoint answers 403 to browsers. It shows the state of the
// gateway, recent refusals and their reasons, and explains decisions. If the configuration permits
// it, it takes orders from authenticated users. docs/console.md describes it.
//
// The page asks the same questions as the admin API and reads nothing but bounded state in memory,
// except for the records of origins. Every text in it may be a site's or a crawler's.
package console
