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

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/enforce"
)

func denyCommand() *cobra.Command {
	var order adminapi.OrderRequest
	cmd := remoteCommand(cobra.Command{
		Use:   "deny [all | host PATTERN | agent NAME] [--by WHO] [--reason TEXT] [--force]",
		Short: "Stops everything, a host or an agent at once, and lists what is stopped",
		Long: `Stops all requests, those to a host or those of an agent, in every mode of the gateway, until undeny. What is under way is
cut off too. Orders outlive reloads and restarts.

A host is a pattern: example.com, *.example.com (every name below it), either with a port. An agent has to be one that is
configured or, where any is let in, a product token; --force gives the order all the same.

Without an argument it lists the orders that hold.`,
		Example: `  crawlgate robots deny host example.com --reason "complaint 4711"
  crawlgate robots deny`,
	}, func(ctx context.Context, r remote, args []string) (int, error) {
		if len(args) == 0 {
			if order != (adminapi.OrderRequest{}) {
				return exitError, errors.New("--by, --reason and --force go with an order")
			}
			return exitOK, ask(ctx, r, get("deny", nil), printOrders)
		}
		var err error
		if order.Scope, order.Value, err = scopeOf(args); err != nil {
			return exitError, err
		}
		if order.By == "" {
			order.By = thisUser()
		}
		return exitOK, ask(ctx, r, post("deny", order), func(w io.Writer, given adminapi.OrderGiven) error {
			return printLine(w, fmt.Sprintf("stopped: %s; %d under way were cut off", given.Order, given.Ended))
		})
	})
	f := cmd.Flags()
	f.StringVar(&order.By, "by", "", "who gives the order; default: the user of this command")
	f.StringVar(&order.Reason, "reason", "", "why")
	f.BoolVar(&order.Force, "force", false, "give the order also where no agent has the name")
	return cmd
}

func printOrders(w io.Writer, list adminapi.Orders) error {
	if len(list.Orders) == 0 {
		return printLine(w, "nothing is stopped")
	}
	t := newTable("SCOPE", "VALUE", "SINCE", "BY", "REASON")
	for _, o := range list.Orders {
		t.row(o.Scope, o.Value, moment(o.At), o.By, o.Reason)
	}
	return t.print(w)
}

// scopeOf reads the scope and value of an order.
func scopeOf(args []string) (scope enforce.KillScope, value string, err error) {
	switch {
	case len(args) == 1 && args[0] == string(enforce.KillAll):
		return enforce.KillAll, "", nil
	case len(args) == 2 && (args[0] == string(enforce.KillHost) || args[0] == string(enforce.KillAgent)):
		return enforce.KillScope(args[0]), args[1], nil
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

func undenyCommand() *cobra.Command {
	return remoteCommand(cobra.Command{
		Use:   "undeny all | host PATTERN | agent NAME",
		Short: "Takes an order of deny back",
		Long:  "Takes an order of deny back. It has to be named as deny lists it.",
	}, func(ctx context.Context, r remote, args []string) (int, error) {
		scope, value, err := scopeOf(args)
		if err != nil {
			return exitError, err
		}
		query := url.Values{"scope": {string(scope)}, "value": {value}}
		q := adminRequest{method: http.MethodDelete, path: "deny", query: query}
		return exitOK, ask(ctx, r, q, func(w io.Writer, lifted adminapi.OrderLifted) error {
			return printLine(w, "lifted: "+lifted.Order.String())
		})
	})
}
