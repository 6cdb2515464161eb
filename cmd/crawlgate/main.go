// Command crawlgate is Caddy with its standard modules, without acmeserver, and those of Crawlgate.
package main

import (
	"os"
	"runtime/debug"

	// The imports of modules/standard, without acmeserver: a gateway issues no certificates over ACME.
	_ "github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/caddyevents"
	_ "github.com/caddyserver/caddy/v2/modules/caddyevents/eventsconfig"
	_ "github.com/caddyserver/caddy/v2/modules/caddyfs"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/standard"
	_ "github.com/caddyserver/caddy/v2/modules/caddypki"
	_ "github.com/caddyserver/caddy/v2/modules/caddytls"
	_ "github.com/caddyserver/caddy/v2/modules/caddytls/distributedstek"
	_ "github.com/caddyserver/caddy/v2/modules/caddytls/standardstek"
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"
	_ "github.com/caddyserver/caddy/v2/modules/logging"
	_ "github.com/caddyserver/caddy/v2/modules/metrics"

	_ "github.com/crawlgate/crawlgate"
)

// gcPercent lets the heap grow to 3.5 times its live size before a collection, or to Caddy's memory
// limit. 400 takes 3 % less CPU, and a third more memory for many hosts.
const gcPercent = 250

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	ownCommands()
	caddycmd.Main()
}
