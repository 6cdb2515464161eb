// Command crawlgate is Caddy with its standard modules and the Crawlgate ones.
package main

import (
	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/crawlgate/crawlgate"
	"github.com/crawlgate/crawlgate/internal/version"
)

func main() {
	caddy.CustomBinaryName = "crawlgate"
	caddy.CustomVersion = "Crawlgate " + version.Read() + ", Caddy"
	caddycmd.Main()
}
