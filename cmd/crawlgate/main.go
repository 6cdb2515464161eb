// Command crawlgate is Caddy with its standard modules and the Crawlgate ones.
package main

import (
	"os"
	"runtime/debug"
	_ "time/tzdata" // zones of windows and budgets, where the machine has none

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

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
