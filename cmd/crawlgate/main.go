// Command crawlgate is Caddy with its standard modules and the Crawlgate ones.
package main

import (
	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/crawlgate/crawlgate"
)

func main() {
	caddy.CustomBinaryName = "crawlgate"
	caddycmd.Main()
}
