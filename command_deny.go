package crawlgate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/user"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

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

Without an argument it lists the orders in force.`,
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
	client, err := newAdminClient(c.address)
	if err != nil {
		return exitError, err
	}
	if len(args) == 0 {
		return exitOK, c.list(ctx, s, client)
	}
	scope, value, err := scopeOf(args)
	if err != nil {
		return exitError, err
	}
	if c.by == "" {
		c.by = thisUser()
	}
	data, err := client.raw(ctx, http.MethodPost, "deny", nil, orderRequest{scope, value, c.by, c.reason, c.force})
	if err != nil {
		return exitError, err
	}
	if c.json {
		return exitOK, printRaw(s.out, data)
	}
	var given orderGiven
	if err := decode(data, &given); err != nil {
		return exitError, err
	}
	return exitOK, printLine(s.out, fmt.Sprintf("stopped: %s; %d under way were cut off", given.Order, given.Ended))
}

func (c *denyCommand) list(ctx context.Context, s streams, client *adminClient) error {
	if c.by != "" || c.reason != "" || c.force {
		return errors.New("--by, --reason and --force go with an order")
	}
	data, err := client.raw(ctx, http.MethodGet, "deny", nil, nil)
	if err != nil {
		return err
	}
	if c.json {
		return printRaw(s.out, data)
	}
	var list orders
	if err := decode(data, &list); err != nil {
		return err
	}
	if len(list.Orders) == 0 {
		return printLine(s.out, "nothing is stopped")
	}
	t := newTable("SCOPE", "VALUE", "SINCE", "BY", "REASON")
	for _, o := range list.Orders {
		t.row(string(o.Scope), o.Value, moment(o.At), o.By, o.Reason)
	}
	return t.print(s.out)
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
	client, err := newAdminClient(c.address)
	if err != nil {
		return exitError, err
	}
	q := url.Values{"scope": {string(scope)}}
	if value != "" {
		q.Set("value", value)
	}
	data, err := client.raw(ctx, http.MethodDelete, "deny", q, nil)
	if err != nil {
		return exitError, err
	}
	if c.json {
		return exitOK, printRaw(s.out, data)
	}
	var lifted orderLifted
	if err := decode(data, &lifted); err != nil {
		return exitError, err
	}
	return exitOK, printLine(s.out, "lifted: "+lifted.Order.String())
}
