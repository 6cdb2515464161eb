package main

import (
	"errors"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
)

// upgrades are the commands by which Caddy replaces its own binary with one from its website,
// which would not be a gateway.
var upgrades = []string{"upgrade", "add-package", "remove-package"}

var errUpgrade = errors.New("this would replace the gateway by a Caddy without it. Install another version of crawlgate instead, " +
	"as docs/operate.md says; to build a binary with more Caddy modules, use xcaddy")

const (
	short = "makes every crawler of a company obey robots.txt"
	long  = `Crawlgate is a forward proxy in front of a company's crawlers. It refuses what the robots.txt of
the target disallows, paces what it allows, and writes one line about each request.

"crawlgate robots" has the commands that ask a running gateway and give it orders, check URLs, and
audit logs. The others are those of Caddy, the server that Crawlgate is a module of.`
	example = `  $ crawlgate run --config Caddyfile
  $ crawlgate reload --config Caddyfile
  $ crawlgate robots check --agent AcmeBot https://example.com/`

	caddyDocs = "https://caddyserver.com/docs/command-line"
	ownDocs   = "https://github.com/crawlgate/crawlgate/blob/main/docs/cli.md"
)

// ownName puts the name of this program into the texts of Caddy's commands.
var ownName = strings.NewReplacer(
	"Caddy process", "Crawlgate process", "Caddy instance", "Crawlgate instance", "Caddy binary", "Crawlgate binary",
	"pages for Caddy commands", "pages for its commands", "configure Caddy", "configure Crawlgate", "stop Caddy", "stop Crawlgate", "runs Caddy", "runs Crawlgate", "run Caddy", "run Crawlgate", "your Caddy\n", "your Crawlgate\n",
	"caddy file-server", "crawlgate file-server", "$ caddy ", "$ crawlgate ", "> caddy ", "> crawlgate ", `"caddy `, `"crawlgate `, "'caddy ", "'crawlgate ", "`caddy ", "`crawlgate ",
)

// ownCommands adapts Caddy's commands to this program: help and manual pages have its name and
// links, and the upgrades return an error and are not listed in help, manual pages and
// completions. Caddy can only register commands, but it adds them to the root in order: when our
// last command is made, our first one leads to the root, and so to Caddy's own commands.
func ownCommands() {
	caddy.CustomBinaryName, caddy.CustomLongDescription = "crawlgate", long
	var ours []*cobra.Command
	for _, name := range upgrades {
		delete(caddycmd.Commands(), name)
		caddycmd.RegisterCommand(caddycmd.Command{Name: name, Short: "Not in this binary", CobraFunc: func(cmd *cobra.Command) {
			cmd.Hidden, cmd.DisableFlagParsing = true, true
			cmd.RunE = func(*cobra.Command, []string) error { return errUpgrade }
			if ours = append(ours, cmd); len(ours) < len(upgrades) {
				return
			}
			root := ours[0].Root()
			root.RemoveCommand(slices.DeleteFunc(slices.Clone(root.Commands()), func(c *cobra.Command) bool {
				return !slices.Contains(upgrades, c.Name()) || slices.Contains(ours, c)
			})...)
			root.Short, root.Example = short, example
			root.SetHelpTemplate(strings.Replace(root.HelpTemplate(), caddyDocs, ownDocs, 1))
			rename(root.Commands())
		}})
	}
}

func rename(commands []*cobra.Command) {
	for _, c := range commands {
		c.Short, c.Long, c.Example = ownName.Replace(c.Short), ownName.Replace(c.Long), ownName.Replace(c.Example)
		rename(c.Commands())
	}
}
