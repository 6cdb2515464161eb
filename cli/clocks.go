package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/crawlgate/crawlgate/adminapi"
)

func clocksCommand() *cobra.Command {
	var key, after, state string
	var limit int
	cmd := remoteCommand(cobra.Command{
		Use:   "clocks [--key KEY | --state STATE] [--after KEY] [--limit N]",
		Short: "Shows when hosts may be asked again, and how many requests wait for them",
		Long: `Shows the clocks of the hosts: when the next request may go, the site's delay, how many requests
are under way and how many wait, and which hosts are blocked after 429, 430 or 503.`,
		Example: `  crawlgate robots clocks --state blocked
  crawlgate robots clocks --key example.com`,
	}, func(ctx context.Context, r remote, args []string) (int, error) {
		if len(args) > 0 {
			return exitError, misused("it takes no argument")
		}
		query := url.Values{"limit": {strconv.Itoa(limit)}, "key": {key}, "state": {state}, "after": {after}}
		return exitOK, ask(ctx, r, get("clocks", query), printClocks)
	})
	f := cmd.Flags()
	f.StringVar(&key, "key", "", "only this clock: a host or a URL, or as listed")
	f.StringVar(&state, "state", "", "only clocks in this state: blocked, waiting (requests wait for it) or busy (requests are under way)")
	f.StringVar(&after, "after", "", "begin after this clock")
	f.IntVar(&limit, "limit", adminapi.DefaultPage, "list at most this many, up to "+strconv.Itoa(adminapi.MaxPage))
	return cmd
}

func printClocks(w io.Writer, info adminapi.Clocks) {
	t := newTable()
	t.row(fmt.Sprintf("%d clocks, %d requests waiting, %d clocks blocked", info.Keys, info.Waiting, info.Blocked))
	if len(info.Clocks) > 0 {
		t.row("CLOCK", "NEXT IN", "DELAY", "IN FLIGHT", "QUEUE", "BLOCKED FOR", "STRIKES")
	}
	for _, k := range info.Clocks {
		t.row(k.Key, inSeconds(k.WaitSeconds, "now"), inSeconds(k.DelaySeconds, "-"),
			number(k.InFlight), number(k.Queue), blockOf(k), number(k.Strikes))
	}
	if info.Next != "" {
		t.row("There are more: --after " + info.Next)
	}
	t.print(w)
}

// inSeconds formats a time for the table, to a tenth of a second.
func inSeconds(s float64, none string) string {
	if s <= 0 {
		return none
	}
	return max(time.Duration(s*float64(time.Second)).Round(100*time.Millisecond), 100*time.Millisecond).String()
}

// blockOf returns how long the clock is still blocked.
func blockOf(k adminapi.Clock) string {
	switch {
	case k.BlockedUntil.IsZero():
		return "-"
	case k.LeftSeconds == 0:
		return "over"
	}
	return (time.Duration(k.LeftSeconds) * time.Second).String()
}

func unblockCommand() *cobra.Command {
	return remoteCommand(cobra.Command{
		Use:   "unblock HOST...",
		Short: "Ends the block of hosts that answered 429, 430 or 503",
		Long: `Ends the block of each host, which it got by answering 429, 430 or 503, and resets its count of
such answers. Requests go at the operator's rate again, without a burst. All gateways that share
clocks, or belong to the fleet, do the same.

A URL means its host. Name a clock that is not a host's as "clocks --state blocked" lists it.

Exit status: 0 it is done, 1 a host is not blocked, or a gateway of the fleet has not answered, 2
the command failed.`,
		Example: `  crawlgate robots unblock example.com`,
	}, func(ctx context.Context, r remote, args []string) (int, error) {
		q := func(arg string) adminRequest { return post("unblock", adminapi.UnblockRequest{Key: arg}) }
		return orderEach(ctx, r, args, q, printUnblocked)
	})
}

func printUnblocked(w io.Writer, done adminapi.Unblocked) {
	for _, b := range done.Ended {
		line := b.Key + " was blocked until " + cmp.Or(moment(b.BlockedUntil), "a time that other gateways know")
		if b.Strikes > 0 {
			line += ", strikes: " + number(b.Strikes)
		}
		printLine(w, line)
	}
}
