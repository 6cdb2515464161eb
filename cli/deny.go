package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/enforce"
)

func denyCommand() *cobra.Command {
	var request adminapi.OrderRequest
	cmd := remoteCommand(cobra.Command{
		Use:   "deny [all | host PATTERN | agent NAME | agent@host NAME@PATTERN] [--by WHO] [--reason TEXT] [--force]",
		Short: "Stops everything, a host or an agent at once, and lists the stops",
		Long: `Stops all requests, or those to a host, of an agent, or of an agent to a host, at once and in every
mode of the gateway, until undeny. Requests under way are ended too. Stops survive reloads and
restarts. Without an argument the command lists the stops and exceptions in force.

A host is a pattern: example.com, or *.example.com for every name below it, either with a port. An
unknown agent is an error that names similar ones. If a gateway has no agent blocks, or lets
unidentified crawlers in, every product token is accepted.

In a fleet the command waits until all gateways have answered, for 3 s at most. It names the silent
gateways, with their last heartbeat. A silent gateway gets the stop when it is back. undeny, allow,
purge, refresh and unblock do the same, but a gateway that is back ignores a refresh or an unblock
that is older than a minute. Gateways of 0.1.0 report a stop of agent@host as malformed, and stop
nothing.

Exit status: 0 all gateways have answered, 1 some have not, 2 the command failed.`,
		Example: `  crawlgate robots deny
  crawlgate robots deny agent@host AcmeBot@shop.example --reason "too fast"

  $ crawlgate robots deny host example.com --reason "complaint 4711"
  stopped: host example.com, by dora, because: complaint 4711
  3 of 3 gateways, 12 requests ended`,
	}, func(ctx context.Context, r remote, args []string) (int, error) {
		if len(args) == 0 {
			if request != (adminapi.OrderRequest{}) {
				return exitError, misused("--by, --reason and --force go with an order")
			}
			return exitOK, ask(ctx, r, get("deny", nil), printOrders)
		}
		var err error
		if request.Scope, request.Value, err = scopeOf(args, ""); err != nil {
			return exitError, err
		}
		request.By = cmp.Or(request.By, thisUser())
		return order(ctx, r, post("deny", request), func(w io.Writer, given adminapi.OrderGiven) {
			line := "stopped: " + given.Order.String()
			if len(given.Gateways) == 0 {
				line += fmt.Sprintf("; %d under way were cut off", given.Ended)
			}
			printLine(w, line)
		})
	})
	cmd.SuggestFor = []string{"stop", "kill", "block"}
	f := cmd.Flags()
	f.StringVar(&request.By, "by", "", "the user who gives the stop; default: the user of this command; over a unix socket only root and the user of the gateway may name another")
	f.StringVar(&request.Reason, "reason", "", "why")
	f.BoolVar(&request.Force, "force", false, "give the stop even if no agent has the name")
	return cmd
}

func allowCommand() *cobra.Command {
	var request adminapi.AllowRequest
	cmd := remoteCommand(cobra.Command{
		Use:   "allow HOST --agent NAME [--path PREFIX]... --until TIME --by WHO --ticket TEXT [--reason TEXT]",
		Short: "Lets an agent fetch for a time what robots.txt refuses",
		Long: `Gives an exception at run time: an agent may send requests to a host even if robots.txt refuses
them, at all gateways of a fleet, as if the Caddyfile had an except. The preferences of the site
are not judged either, including those in header fields, tags and tdmrep.json. Stops, the
configuration's deny and the limits of the agent stay in force.

The exception ends by itself at its time, or earlier by undeny. deny lists it. Gateways of 0.1.0 in
the same fleet do not know exceptions: robots.txt decides there.
docs/limits.md#exceptions-at-run-time says who should be able to give one.

A host is a pattern as for deny.

Exit status: 0 all gateways have answered, 1 some have not, 2 the command failed.`,
		Example: `  $ crawlgate robots allow shop.example --agent AcmeBot --path /feed/ --until 2026-12-31 --by dora --ticket OPS-4711
  allowed: AcmeBot@shop.example /feed/, by dora, ticket OPS-4711, until 2027-01-01T00:00:00Z
  3 of 3 gateways

  $ crawlgate robots undeny allow 'AcmeBot@shop.example /feed/'`,
	}, func(ctx context.Context, r remote, args []string) (int, error) {
		if len(args) != 1 || request.Agent == "" || request.Until == "" || request.By == "" || request.Ticket == "" {
			return exitError, misused("want one host, --agent, --until, --by and --ticket")
		}
		request.Host = args[0]
		return order(ctx, r, post("allow", request), func(w io.Writer, given adminapi.OrderGiven) {
			printLine(w, "allowed: "+strings.TrimPrefix(given.Order.String(), "allow "))
		})
	})
	f := cmd.Flags()
	f.StringVar(&request.Agent, "agent", "", "the agent whose requests pass; it has to be configured")
	f.StringArrayVar(&request.Paths, "path", nil, "only paths that begin like this, as in except; may be repeated")
	f.StringVar(&request.Until, "until", "", "when it ends: a date, which is included (in UTC), or a time such as 2026-12-31T12:00:00Z; not later than the option allow_for permits")
	f.StringVar(&request.By, "by", "", "the person who permits it; over a unix socket only root and the user of the gateway may name another")
	f.StringVar(&request.Ticket, "ticket", "", "the request for it, in a line")
	f.StringVar(&request.Reason, "reason", "", "why")
	return cmd
}

func printOrders(w io.Writer, list adminapi.Orders) {
	if len(list.Orders) == 0 {
		printLine(w, "nothing is stopped")
		return
	}
	columns := []any{"SCOPE", "VALUE", "SINCE", "BY", "REASON", "UNTIL", "TICKET"}
	if !slices.ContainsFunc(list.Orders, func(o enforce.Stop) bool { return o.Scope == enforce.StopAllow }) {
		columns = columns[:5]
	}
	t := newTable(columns...)
	for _, o := range list.Orders {
		t.row([]any{o.Scope, o.Value, moment(o.At), o.By, o.Reason, moment(o.Until), o.Ticket}[:len(columns)]...)
	}
	t.print(w)
}

// allowForm is the form in which undeny names an exception.
const allowForm = "allow 'NAME@PATTERN [PATH]...'"

// scopeOf reads the scope and value of a stop, or of another order that takes the same arguments.
func scopeOf(args []string, other string) (scope enforce.StopScope, value string, err error) {
	switch {
	case len(args) == 2 && args[0] == string(enforce.StopAllow) && other != "":
		return enforce.StopAllow, args[1], nil
	case len(args) == 1 && args[0] == string(enforce.StopAll):
		return enforce.StopAll, "", nil
	case len(args) == 2 && slices.Contains(scopes[1:], args[0]):
		return enforce.StopScope(args[0]), args[1], nil
	}
	return scope, "", misused(strings.TrimSuffix("want all, host PATTERN, agent NAME or agent@host NAME@PATTERN, or "+other, ", or "))
}

// thisUser returns the name of the user, also under sudo, or "" if it is unknown.
func thisUser() string {
	if name := os.Getenv("SUDO_USER"); name != "" {
		return name
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return os.Getenv("USER")
}

func undenyCommand() *cobra.Command {
	var by string
	cmd := remoteCommand(cobra.Command{
		Use:   "undeny all | host PATTERN | agent NAME | agent@host NAME@PATTERN | " + allowForm + " [--by WHO]",
		Short: "Lifts a stop of deny or an exception of allow",
		Long: `Lifts a stop of deny or an exception of allow, at all gateways of a fleet. Name it as deny lists
it. An order that another gateway gives at the same time stays in force.

If the lift of a stop cannot be saved, for example because the disk is full, the stop stays in
force and the command fails. An exception ends all the same, at all gateways, but the command
fails, because a restart may bring the exception back.

Exit status: 0 it is lifted, 1 there is no such order, or a gateway has not answered, 2 the command
failed.`,
		Example: `  crawlgate robots undeny host example.com
  crawlgate robots undeny allow 'AcmeBot@shop.example /feed/'`,
	}, func(ctx context.Context, r remote, args []string) (int, error) {
		scope, value, err := scopeOf(args, allowForm)
		if err != nil {
			return exitError, err
		}
		query := url.Values{"scope": {string(scope)}, "value": {value}, "by": {cmp.Or(by, thisUser())}}
		q := adminRequest{method: http.MethodDelete, path: "deny", query: query}
		return order(ctx, r, q, func(w io.Writer, lifted adminapi.OrderLifted) {
			printLine(w, lifted.String())
		})
	})
	cmd.SuggestFor = []string{"lift", "resume", "start"}
	cmd.Flags().StringVar(&by, "by", "", "the user who lifts it; default: the user of this command")
	return cmd
}

func gatewaysCommand() *cobra.Command {
	return remoteCommand(cobra.Command{
		Use:   "gateways",
		Short: "Lists the gateways that stops reach, and how many each has applied",
		Long: `Lists the gateways of the fleet: name, version of the program, digest of the configuration, last
heartbeat, how many stops are in force there, and the version of the stops in Redis. It says how
many of the expected gateways are missing, and whether two processes have the same name. Without a
fleet it lists this gateway.`,
		Example: `  crawlgate robots gateways`,
	}, func(ctx context.Context, r remote, args []string) (int, error) {
		if len(args) > 0 {
			return exitError, misused("it takes no argument")
		}
		return exitOK, ask(ctx, r, get("gateways", nil), printGateways)
	})
}

func printGateways(w io.Writer, list adminapi.Gateways) {
	t := newTable("GATEWAY", "VERSION", "CONFIG", "LAST HEARTBEAT", "ORDERS", "AT")
	twice := ""
	for _, g := range list.Gateways {
		t.row(g.Name, g.Version, cmp.Or(g.Config, "-"), cmp.Or(moment(g.LastHeartbeat), "-"), g.Orders, g.OrdersVersion)
		if g.NameTwice {
			twice = g.Name
		}
	}
	t.print(w)
	if list.Fleet && !list.Up {
		printLine(w, fmt.Sprintf("redis does not answer: this list may be out of date; %d orders wait for it", list.Pending))
	}
	if list.Unlisted > 0 {
		printLine(w, fmt.Sprintf("%d more gateways are not listed", list.Unlisted))
	}
	if n := len(list.Gateways) + list.Unlisted; n < list.Expected {
		printLine(w, fmt.Sprintf("%d gateways are expected, %d are known", list.Expected, n))
	}
	if twice != "" {
		printLine(w, fmt.Sprintf("two processes have the name %s: give each gateway its own", twice))
	}
}
