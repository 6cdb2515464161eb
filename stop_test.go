package crawlgate

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/internal/testgateway"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/origin"
)

// effective is the longest time until an order must take effect.
const effective = time.Second

// endless is a site whose pages do not end. It reports when the gateway closes the connection.
type endless struct {
	*httptest.Server
	begun chan struct{} // receives one value per request that is served
	ended chan struct{} // receives one value per request that ended early
}

func newEndless(t *testing.T) *endless {
	t.Helper()
	e := &endless{begun: make(chan struct{}, 100), ended: make(chan struct{}, 100)}
	e.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/robots.txt":
			http.NotFound(w, r)
		case r.Method == http.MethodPost:
			if _, err := io.ReadFull(r.Body, make([]byte, 10)); err == nil {
				e.begun <- struct{}{}
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				e.ended <- struct{}{}
			}
		default:
			_, _ = io.WriteString(w, "the first part\n")
			_ = http.NewResponseController(w).Flush()
			e.begun <- struct{}{}
			<-r.Context().Done()
			e.ended <- struct{}{}
		}
	}))
	t.Cleanup(e.Close)
	return e
}

// await fails the test unless c receives a value within the given time.
func await(t *testing.T, c <-chan struct{}, limit time.Duration, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(limit):
		t.Fatalf("%s did not happen within %s", what, limit)
	}
}

// patience is the timeout of steps that have no limit of their own.
const patience = 20 * time.Second

// stopRig is a gateway whose stops are tested.
type stopRig struct {
	*testgateway.Gateway
	t *testing.T
}

func newStopRig(t *testing.T, siteLines, globalLines string) *stopRig {
	t.Helper()
	return &stopRig{testgateway.New(t, siteLines, globalLines), t}
}

// site returns the origin of a URL.
func site(tb testing.TB, raw string) origin.Origin {
	tb.Helper()
	o, err := origin.Parse(raw)
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

// deny gives an order and checks how many requests it ended.
func (g *stopRig) deny(scope, value string, ended int) {
	g.t.Helper()
	order := map[string]string{"scope": scope, "value": value, "by": "dora", "reason": "complaint 7"}
	if given := testgateway.Ask[adminapi.OrderGiven](g.Gateway, "POST", "/robots/deny", order); given.Ended != ended {
		g.t.Errorf("the order ended %d, want %d", given.Ended, ended)
	}
}

// killed checks the log entry of a request that was cut off.
func killed(t *testing.T, line map[string]any) {
	t.Helper()
	if line["decision"] != "deny" || line["reason"] != "kill_switch" {
		t.Errorf("log entry = %v, want decision deny with reason kill_switch", line)
	}
	if detail, _ := line["detail"].(string); !strings.Contains(detail, "by dora, because: complaint 7") {
		t.Errorf("logged detail = %q, want the order's author and reason", detail)
	}
}

// visiting runs visit in the background.
func (g *stopRig) visiting(page, agent string) <-chan int {
	statuses := make(chan int, 1)
	go func() {
		resp, err := g.Get(context.WithoutCancel(g.t.Context()), page, agent)
		if err != nil {
			statuses <- 0
			return
		}
		resp.Body.Close()
		statuses <- resp.StatusCode
	}()
	return statuses
}

// refusedSoon checks that a waiting request is refused as soon as an order is given.
func refusedSoon(t *testing.T, statuses <-chan int) {
	t.Helper()
	select {
	case status := <-statuses:
		if status != http.StatusForbidden {
			t.Errorf("the client got status %d, want 403", status)
		}
	case <-time.After(effective):
		t.Fatal("the request still waits after the order")
	}
}

// TestStopCutsResponse checks that an order ends an answer in the middle: the client must not take
// a part for the whole.
func TestStopCutsResponse(t *testing.T) {
	g, e := newStopRig(t, "", ""), newEndless(t)
	resp, err := g.Get(t.Context(), e.URL+"/page", "alpha")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	await(t, e.begun, patience, "the answer")
	g.deny("host", "example.org", 0)
	g.deny("host", site(t, e.URL).Host, 1)
	await(t, e.ended, effective, "the end of the connection to the site")
	body, err := io.ReadAll(resp.Body)
	if !errors.Is(err, io.ErrUnexpectedEOF) || !strings.HasPrefix(string(body), "the first part") {
		t.Errorf("the client read %q, %v, want the first part and io.ErrUnexpectedEOF", body, err)
	}
	killed(t, g.Lines(1)[0])
	if status := g.Visit(e.URL+"/page", "alpha"); status != http.StatusForbidden {
		t.Errorf("the next request got status %d, want 403", status)
	}
}

// TestStopCutsUpload checks that an order ends a request whose body is being sent, since the site
// would get more bytes.
func TestStopCutsUpload(t *testing.T) {
	g, e := newStopRig(t, "", ""), newEndless(t)
	body, writing := io.Pipe()
	defer body.Close()
	go func() {
		for {
			if _, err := writing.Write([]byte("0123456789")); err != nil {
				return
			}
		}
	}()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.URL+"/form", body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("User-Agent", "alpha")
	var status atomic.Int64
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if resp, err := g.Crawler().Do(r); err == nil {
			status.Store(int64(resp.StatusCode))
			resp.Body.Close()
		}
	}()
	await(t, e.begun, patience, "the request")
	g.deny("agent", "ALPHA", 1)
	await(t, e.ended, effective, "the end of the connection to the site")
	await(t, answered, patience, "the answer")
	if s := status.Load(); s != 0 && s != http.StatusForbidden {
		t.Errorf("the client got status %d, want 403 or none", s)
	}
	killed(t, g.Lines(1)[0])
}

// TestStopEndsWaiting checks that an order ends a request that waits for its turn at the host.
func TestStopEndsWaiting(t *testing.T) {
	g := newStopRig(t, "agent alpha {\nmax_wait 60s\n}", "")
	s := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	s.SetRobots(testorigin.OK("User-agent: *\nCrawl-delay: 30\n"))
	g.Visit(s.URL("/first"), "alpha")
	g.Lines(1) // it is no longer in progress
	statuses := g.visiting(s.URL("/second"), "alpha")
	testgateway.Until(t, "waiting", func() bool {
		return testgateway.Ask[adminapi.Clocks](g.Gateway, "GET", "/robots/clocks", nil).Waiting == 1
	})
	g.deny("all", "", 1)
	refusedSoon(t, statuses)
	killed(t, g.Lines(2)[1])
	if n := len(s.PageExchanges()); n != 1 {
		t.Errorf("%d requests reached the site, want 1", n)
	}
}

// TestStopEndsFetch checks that an order ends a fetch of robots.txt with the request that waits for
// it. The site must not be recorded as failing.
func TestStopEndsFetch(t *testing.T) {
	g := newStopRig(t, "", "")
	s := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	o := s.Origin()
	s.SetRobots(testorigin.HangBeforeHead())
	statuses := g.visiting(s.URL("/page"), "alpha")
	testgateway.Until(t, "fetching", func() bool { return len(s.RobotsExchanges()) == 1 })
	g.deny("host", o.Host, 2)
	refusedSoon(t, statuses)
	killed(t, g.Lines(1)[0])
	if a := g.Admin("GET", "/robots/origin?origin="+url.QueryEscape(o.String()), nil); a.Status != http.StatusNotFound {
		t.Errorf("the site is recorded as failing: %s", a.Body)
	}
	if a := g.Admin("POST", "/robots/refresh", adminapi.OriginRequest{Origin: o.String()}); a.Status != http.StatusConflict {
		t.Errorf("refreshing a stopped host: got status %d, %s, want 409", a.Status, a.Body)
	}
	testgateway.Ask[adminapi.OrderLifted](g.Gateway, "DELETE", "/robots/deny?scope=host&value="+o.Host, nil)
	s.SetRobots(testorigin.Status(404))
	if status := g.Visit(s.URL("/page"), "alpha"); status != http.StatusOK {
		t.Errorf("after the lift: got status %d, want 200", status)
	}
}

// TestStopStopsRedirects checks that robots.txt of one site is not fetched from another site that
// is stopped.
func TestStopStopsRedirects(t *testing.T) {
	g := newStopRig(t, "", "")
	server := testorigin.Start(t, testorigin.Config{})
	from, to := server.Site(t, testorigin.SiteConfig{}), server.Site(t, testorigin.SiteConfig{})
	from.SetRobots(testorigin.Redirect(http.StatusMovedPermanently, to.URL("/robots.txt")))
	g.deny("host", to.Origin().Host, 0)
	if status := g.Visit(from.URL("/page"), "alpha"); status != http.StatusForbidden {
		t.Errorf("got status %d, want 403", status)
	}
	if line := g.Lines(1)[0]; line["reason"] != "unreachable" || line["cause"] != "forbidden_address" {
		t.Errorf("log entry = %v, want reason unreachable with cause forbidden_address", line)
	}
	if n := len(to.Exchanges()); n != 0 {
		t.Errorf("%d requests reached the stopped site, want 0", n)
	}
}

// TestStopCutsTunnel checks that an order ends a tunnel that is not intercepted.
func TestStopCutsTunnel(t *testing.T) {
	origin := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(origin.Close)
	o := site(t, origin.URL)
	g := newStopRig(t, fmt.Sprintf("connect tunnel\nexcept %s {\nreason test\n}", o.Host), "")
	conn, err := g.Dial("proxy.sock")(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\nUser-Agent: alpha\r\n\r\n", o.HostPort())
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("CONNECT got status %d, want 200", resp.StatusCode)
	}
	inside := tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) // this test does not check certificates
	if err := inside.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.deny("host", o.Host, 1)
	cut := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, inside)
		close(cut)
	}()
	await(t, cut, effective, "the end of the tunnel")
	killed(t, g.Lines(1)[0])
}

// TestReportedRobotsTxt checks that robots.txt comes from the cache in mode report even if the
// sender would be refused in mode enforce.
func TestReportedRobotsTxt(t *testing.T) {
	var asked atomic.Int32
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = io.WriteString(w, "User-agent: *\nDisallow: /x\n")
	}))
	t.Cleanup(origin.Close)
	g := testgateway.New(t, "mode report\nagent acme {\ncredential ann $2a$04$nTPLGrAZOYSdrXDOKtUBVOuV4tHJ9FzS5Yc0oyKp6qkJ5eJc3y6Qu\n}", "")
	for range 3 {
		if status := g.Visit(origin.URL+"/robots.txt", "acme"); status != http.StatusOK {
			t.Errorf("robots.txt: got status %d, want 200", status)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("the site got %d requests, want 1", n)
	}
}

// TestStopOutlives checks that orders stay in force after a reload and a restart, also for requests
// of the old configuration.
func TestStopOutlives(t *testing.T) {
	g, e := newStopRig(t, "", ""), newEndless(t)
	resp, err := g.Get(t.Context(), e.URL+"/page", "alpha")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	await(t, e.begun, patience, "the answer")
	g.Load("unknown allow", "")
	g.deny("host", site(t, e.URL).Host, 1)
	await(t, e.ended, effective, "the end of what an older configuration had begun")

	g.Load("unknown deny", "")
	if status := g.Visit(e.URL+"/page", "alpha"); status != http.StatusForbidden {
		t.Errorf("after a reload: got status %d, want 403", status)
	}
	g.Stop()
	g.Load("", "")
	if status := g.Visit(e.URL+"/page", "alpha"); status != http.StatusForbidden {
		t.Errorf("after a restart: got status %d, want 403", status)
	}
	if list := testgateway.Ask[adminapi.Orders](g.Gateway, "GET", "/robots/deny", nil); len(list.Orders) != 1 || list.Orders[0].By != "dora" || list.Orders[0].At.IsZero() {
		t.Errorf("orders after a restart = %+v, want the one by dora", list)
	}
	g.deny("all", "", 0) // no ended request is still registered
}
