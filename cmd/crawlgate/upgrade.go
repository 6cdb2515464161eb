package main

import (
	"errors"
	"slices"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
)

// upgrades are the commands by which Caddy replaces its own binary by one that its website builds.
// That one would be no gateway.
var upgrades = []string{"upgrade", "add-package", "remove-package"}

var errUpgrade = errors.New("this would replace the gateway by a Caddy without it. Install another version of crawlgate instead, " +
	"as docs/operate.md says; a binary with further Caddy modules is built with xcaddy")

// withoutUpgrades puts an error in the place of these commands, and keeps them out of help, manual
// pages and completions. Caddy can register commands only, but adds them to the root in that order:
// when the last of ours is made, the first one leads to the root, and so to Caddy's own.
func withoutUpgrades() {
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
		}})
	}
}
