package crawlgate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// clocksCommand shows how the clocks of the hosts stand.
type clocksCommand struct {
	remote
	key   string
	after string
	limit int
}

func (*clocksCommand) usage() cobra.Command {
	return cobra.Command{
		Use:   "clocks [--key KEY | --after KEY] [--limit N]",
		Short: "Shows which hosts asked to be left alone, and how many requests wait",
		Long: `Shows how many clocks there are, how many requests are held for their turn, and which hosts asked, by 429 or 503, to be left
alone.`,
	}
}

func (c *clocksCommand) flags(f *pflag.FlagSet) {
	c.remote.flags(f)
	f.StringVar(&c.key, "key", "", "only this clock: a host, or as listed")
	f.StringVar(&c.after, "after", "", "begin behind this clock")
	f.IntVar(&c.limit, "limit", defaultPage, "list so many at most, up to "+strconv.Itoa(maxPage))
}

func (c *clocksCommand) run(ctx context.Context, s streams, args []string) (int, error) {
	if len(args) > 0 {
		return exitError, errors.New("it takes no argument")
	}
	client, err := newAdminClient(c.address)
	if err != nil {
		return exitError, err
	}
	q := url.Values{"limit": {strconv.Itoa(c.limit)}}
	if c.key != "" {
		q.Set("key", c.key)
	}
	if c.after != "" {
		q.Set("after", c.after)
	}
	data, err := client.raw(ctx, http.MethodGet, "clocks", q, nil)
	if err != nil {
		return exitError, err
	}
	if c.json {
		return exitOK, printRaw(s.out, data)
	}
	var info clocksInfo
	if err := decode(data, &info); err != nil {
		return exitError, err
	}
	t := newTable()
	t.note(fmt.Sprintf("%d clocks, %d requests waiting, %d clocks blocked", info.Keys, info.Waiting, info.Blocked))
	if len(info.Blocks) > 0 {
		t.row("CLOCK", "BLOCKED UNTIL", "LEFT", "STRIKES")
	}
	for _, b := range info.Blocks {
		left := "over"
		if b.LeftSeconds > 0 {
			left = (time.Duration(b.LeftSeconds) * time.Second).String()
		}
		t.row(b.Key, moment(b.Until), left, number(b.Strikes))
	}
	if info.Next != "" {
		t.note("There are more: --after " + info.Next)
	}
	return exitOK, t.print(s.out)
}
