package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// site is the origin: pages of 1 KiB and a robots.txt with as many rules as a large shop has.
type site struct {
	server *http.Server
	url    string
}

func startOrigin() (*site, error) {
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	page := []byte(strings.Repeat("0123456789abcde\n", 64))
	rules := []byte(shopRules())
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := page
		if r.URL.Path == "/robots.txt" {
			body = rules
		}
		_, _ = w.Write(body)
	})
	s := &site{server: &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}, url: "http://" + listener.Addr().String()}
	go func() { _ = s.server.Serve(listener) }()
	return s, nil
}

func (s *site) close() { _ = s.server.Close() }

// shopRules has 150 rules, some with wildcards.
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

// load sends allowed requests over keep-alive connections, each waiting for its answer, and returns the CPU time that the
// gateway used for them.
func (g *gateway) load(ctx context.Context, s *site, connections, requests int) (time.Duration, error) {
	before, err := g.cpu()
	if err != nil {
		return 0, err
	}
	workers, ctx := errgroup.WithContext(ctx)
	for i := range connections {
		workers.Go(func() error { return g.drive(ctx, s, i, requests*(i+1)/connections-requests*i/connections) })
	}
	if err := workers.Wait(); err != nil {
		return 0, err
	}
	after, err := g.cpu()
	return after - before, err
}

// drive sends n requests over one connection.
func (g *gateway) drive(ctx context.Context, s *site, worker, n int) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", g.addr)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	answers := bufio.NewReader(conn)
	host := strings.TrimPrefix(s.url, "http://")
	for i := range n {
		_, err := fmt.Fprintf(conn, "GET %s/catalogue/item/%d/%d?page=2 HTTP/1.1\r\nHost: %s\r\nUser-Agent: Bench/1.0\r\nAccept: */*\r\n\r\n",
			s.url, worker, i, host)
		if err != nil {
			return err
		}
		resp, err := http.ReadResponse(answers, nil)
		if err != nil {
			return err
		}
		size, err := io.Copy(io.Discard, resp.Body)
		if err := errors.Join(err, resp.Body.Close()); err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK || size != 1024 {
			return fmt.Errorf("status %d with %d octets", resp.StatusCode, size)
		}
	}
	return nil
}
