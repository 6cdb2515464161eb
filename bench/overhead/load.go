package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// site is an origin with pages of 1 KiB and a robots.txt with as many rules as a large
// shop has.
type site struct{ *httptest.Server }

// pageSize is the length of a page.
const pageSize = 1 << 10

// upstream is one of the protocols of an origin.
type upstream uint8

const (
	originHTTP  upstream = iota // without TLS
	originTLS                   // HTTP/1.1 over TLS
	originHTTP2                 // HTTP/2 over TLS
)

func startOrigin(u upstream) *site {
	page, rules := []byte(strings.Repeat("0123456789abcde\n", pageSize/16)), []byte(shopRules())
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := page
		if r.URL.Path == "/robots.txt" {
			body = rules
		}
		_, _ = w.Write(body)
	}))
	server.Config.ReadHeaderTimeout = time.Minute
	server.EnableHTTP2 = u == originHTTP2
	if u == originHTTP {
		server.Start()
	} else {
		server.StartTLS()
	}
	return &site{server}
}

func (s *site) close() {
	s.CloseClientConnections()
	s.Close()
}

// shopRules returns 150 rules, some with wildcards.
func shopRules() string {
	var b strings.Builder
	b.WriteString("User-agent: *\n")
	for i := range 150 {
		switch i % 5 {
		case 0:
			fmt.Fprintf(&b, "Disallow: /*?filter%d=\n", i)
		case 1:
			fmt.Fprintf(&b, "Allow: /gp/list%d/public\n", i)
		default:
			fmt.Fprintf(&b, "Disallow: /gp/list%d/\n", i)
		}
	}
	return b.String()
}

// way says how requests reach the gateway and which origin gets them.
type way struct {
	name  string
	site  *site
	dial  dialer
	fresh bool // one connection per request
	mute  bool // without the request itself
}

// load sends allowed requests. On each connection, each request waits for the answer to the
// previous one. It returns the CPU time that the gateway used for them.
func (g *gateway) load(ctx context.Context, w way, connections, requests int) (time.Duration, error) {
	before, err := g.CPU()
	if err != nil {
		return 0, err
	}
	workers, ctx := errgroup.WithContext(ctx)
	for i := range connections {
		workers.Go(func() error { return g.drive(ctx, w, i, requests*(i+1)/connections-requests*i/connections) })
	}
	if err := workers.Wait(); err != nil {
		return 0, err
	}
	after, err := g.CPU()
	return after - before, err
}

// drive sends n requests, one after the other.
func (g *gateway) drive(ctx context.Context, w way, worker, n int) error {
	var c client
	for i := range n {
		if c == nil {
			var err error
			if c, err = w.dial(ctx, g, w.site); err != nil {
				return err
			}
		}
		var err error
		if !w.mute {
			err = read(c.get(fmt.Sprintf("/catalogue/item/%d/%d?page=2", worker, i)))
		}
		if w.fresh || i == n-1 || err != nil {
			c.close()
			c = nil
		}
		if err != nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
	}
	return nil
}
