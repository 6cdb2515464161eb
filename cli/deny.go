package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/user"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/enforce"
)

// denyCommand gives orders to the kill switch, and lists them.
type denyCommand struct {
	remote
	by     string
	reason string
	force  bool
}

func (*denyCommand) usage() cobra.Command {
	return cobra.Command{
		Use:   "deny [all | host PATTERN | agent NAME] [--by WHO] [--reason TEXT] [--force]",
		Short: "Stops everything, a host or an agent at once, and lists what is stopped",
		Long: `Stops all requests, those to a host or those of an agent, in every mode of the gateway, until undeny. What is under way is
cut off too. Orders outlive reloads and restarts.

A host is a pattern: example.com, *.example.com (every name below it), either with a port. An agent has to be one that is
configured or, where any is let in, a product token; --force gives the order all the same.

Without an argument it lists the orders that hold.`,
		Example: `  crawlgate robots deny host example.com --reason "complaint 4711"
  crawlgate robots deny`,
	}
}

func (c *denyCommand) flags(f *pflag.FlagSet) {
	c.remote.flags(f)
	f.StringVar(&c.by, "by", "", "who gives the order; default: the user of this command")
	f.StringVar(&c.reason, "reason", "", "why")
	f.BoolVar(&c.force, "force", false, "give the order also where no agent has the name")
}

func (c *denyCommand) run(ctx context.Context, s streams, args []string) (int, error) {
	if len(args) == 0 {
		if c.by != "" || c.reason != "" || c.force {
			return exitError, errors.New("--by, --reason and --force go with an order")
		}
		q := adminRequest{method: http.MethodGet, path: "deny"}
		return ask(ctx, &c.remote, s, q, func(list adminapi.Orders) error { return printOrders(s.out, list) })
	}
	scope, value, err := scopeOf(args)
	if err != nil {
		return exitError, err
	}
	if c.by == "" {
		c.by = thisUser()
	}
	order := adminapi.OrderRequest{Scope: scope, Value: value, By: c.by, Reason: c.reason, Force: c.force}
	q := adminRequest{method: http.MethodPost, path: "deny", body: order}
	return ask(ctx, &c.remote, s, q, func(given adminapi.OrderGiven) error {
		return printLine(s.out, fmt.Sprintf("stopped: %s; %d under way were cut off", given.Order, given.Ended))
	})
}

func printOrders(w io.Writer, list adminapi.Orders) error {
	if len(list.Orders) == 0 {
		return printLine(w, "nothing is stopped")
	}
	t := newTable("SCOPE", "VALUE", "SINCE", "BY", "REASON")
	for _, o := range list.Orders {
		t.row(string(o.Scope), o.Value, moment(o.At), o.By, o.Reason)
	}
	return t.print(w)
}

// scopeOf reads what an order is about.
func scopeOf(args []string) (scope enforce.KillScope, value string, err error) {
	switch scope = enforce.KillScope(args[0]); {
	case scope == enforce.KillAll && len(args) == 1:
		return scope, "", nil
	case (scope == enforce.KillHost || scope == enforce.KillAgent) && len(args) == 2:
		return scope, args[1], nil
	}
	return scope, "", errors.New("want all, host PATTERN or agent NAME")
}

// thisUser is the name of the user, empty if it cannot be told.
func thisUser() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return os.Getenv("USER")
}

// undenyCommand takes an order back.
type undenyCommand struct{ remote }

func (*undenyCommand) usage() cobra.Command {
	return cobra.Command{
		Use:   "undeny all | host PATTERN | agent NAME",
		Short: "Takes an order of deny back",
		Long:  "Takes an order of deny back. It has to be named as deny lists it.",
	}
}

func (c *undenyCommand) run(ctx context.Context, s streams, args []string) (int, error) {
	if len(args) == 0 {
		return exitError, errors.New("want all, host PATTERN or agent NAME")
	}
	scope, value, err := scopeOf(args)
	if err != nil {
		return exitError, err
	}
	query := url.Values{"scope": {string(scope)}, "value": {value}}
	q := adminRequest{method: http.MethodDelete, path: "deny", query: query}
	return ask(ctx, &c.remote, s, q, func(lifted adminapi.OrderLifted) error {
		return printLine(s.out, "lifted: "+lifted.Order.String())
	})
}
