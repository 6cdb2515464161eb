package testorigin_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

func TestDripTakesItsTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := testorigin.Start(t, testorigin.Config{InMemory: true})
		site := server.Site(t, testorigin.SiteConfig{})
		site.SetRobots(testorigin.Drip("0123456789", time.Second).After(time.Minute))
		transport := newTransport(t, server)
		defer transport.CloseIdleConnections()

		start := time.Now()
		status, body := mustGet(t, transport, site.URL("/robots.txt"))
		if took := time.Since(start); status != 200 || body != "0123456789" || took != 70*time.Second {
			t.Errorf("got %d, %q after %v, want the whole body after 70 s", status, body, took)
		}
		synctest.Wait()
		exchanges := site.RobotsExchanges()
		if len(exchanges) != 1 || exchanges[0].End.Sub(exchanges[0].Start) != 70*time.Second {
			t.Errorf("recorded %+v, want one exchange of 70 s", exchanges)
		}
	})
}

// stalling are behaviours that never end by themselves.
var stalling = []testorigin.Behaviour{
	testorigin.HangBeforeHead(),
	testorigin.HangInHead(),
	testorigin.HangInBody(rules, 10),
	testorigin.Drip(rules, 365*24*time.Hour),
	testorigin.OK(rules).After(365 * 24 * time.Hour),
	testorigin.HandshakeHang(),
}

func TestClientThatLeavesEndsTheWait(t *testing.T) {
	t.Parallel()
	for _, behaviour := range stalling {
		t.Run(behaviour.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := testorigin.Start(t, testorigin.Config{InMemory: true})
				site := server.Site(t, testorigin.SiteConfig{Scheme: "https"})
				site.SetRobots(behaviour)
				transport := newTransport(t, server)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				_, _, err := get(ctx, transport, site.URL("/robots.txt"))
				if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
					t.Errorf("got error %v, want the client's own deadline", err)
				}
				synctest.Wait()
				for _, e := range site.Exchanges() {
					if took := e.End.Sub(e.Start); took != 5*time.Second || e.Err == "" {
						t.Errorf("exchange ended after %v with %q, want the client's 5 s and an error", took, e.Err)
					}
				}
				if len(site.Exchanges()) != 1 {
					t.Errorf("recorded %+v, want one exchange", site.Exchanges())
				}
			})
		})
	}
}

func TestCloseEndsEveryWait(t *testing.T) {
	t.Parallel()
	for _, behaviour := range stalling {
		t.Run(behaviour.Name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				server := testorigin.Start(t, testorigin.Config{InMemory: true})
				site := server.Site(t, testorigin.SiteConfig{Scheme: "https"})
				site.SetRobots(behaviour)
				transport := newTransport(t, server)
				failed := make(chan error)
				go func() {
					_, _, err := get(context.Background(), transport, site.URL("/robots.txt"))
					failed <- err
				}()
				synctest.Wait()
				start := time.Now()
				server.Close()
				if err := <-failed; err == nil {
					t.Error("the request succeeded on a closed server")
				}
				if took := time.Since(start); took != 0 {
					t.Errorf("Close took %v, want 0", took)
				}
			})
		})
	}
}

// TestCloseEndsWaitsOnSockets does the same with real sockets.
func TestCloseEndsWaitsOnSockets(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{}, 100)
	server := testorigin.Start(t, testorigin.Config{Now: func() time.Time {
		select {
		case arrived <- struct{}{}:
		default:
		}
		return time.Now()
	}})
	site := server.Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.HangInBody(rules, 10))
	for len(arrived) > 0 {
		<-arrived // the clock of SetRobots
	}
	transport := newTransport(t, server)
	failed := make(chan error)
	go func() {
		_, _, err := get(context.Background(), transport, site.URL("/robots.txt"))
		failed <- err
	}()
	<-arrived
	server.Close()
	server.Close() // may be called again
	if err := <-failed; err == nil {
		t.Error("the request succeeded on a closed server")
	}
	if _, _, err := get(t.Context(), transport, site.URL("/robots.txt")); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after Close: %v, want connection refused", err)
	}
	if _, err := server.AddSite(testorigin.SiteConfig{}); err == nil {
		t.Error("a closed server accepts another site")
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := testorigin.Start(t, testorigin.Config{InMemory: true, MaxConns: 1})
		site := server.Site(t, testorigin.SiteConfig{})
		first, err := server.DialContext(t.Context(), "tcp", site.Origin().HostPort())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := server.DialContext(ctx, "tcp", site.Origin().HostPort()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second connection: %v, want a wait to the deadline", err)
		}
		if err := first.Close(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		transport := newTransport(t, server)
		defer transport.CloseIdleConnections()
		if status, _ := mustGet(t, transport, site.URL("/")); status != http.StatusOK {
			t.Errorf("after the first client has left: got status %d", status)
		}
	})
}
