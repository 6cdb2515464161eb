//go:build slow

package chaos

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// fleetPages is the number of pages that the clients request at each site: /p0 and so on.
const fleetPages = 8

// fleet is a number of sites that change between all misbehaviours while clients crawl them through
// a gateway.
type fleet struct {
	server *testorigin.Server
	sites  []*testorigin.Site
	http   []testorigin.Behaviour
	https  []testorigin.Behaviour
	texts  map[string]string // the SHA-256 of each text to its bytes
	lastID atomic.Int64
	// retry lets a client repeat a request if the gateway has closed the connection between two
	// requests.
	retry bool

	// forking is held while a process starts. Between fork and exec the child has a copy of every
	// listener, so a site that goes down and comes up in that time would find its own port taken.
	forking sync.Mutex
}

// visit is one request of a client and its outcome.
type visit struct {
	id       int64
	site     int
	page     string
	from, to time.Time // before the first byte was sent, and after the last one was read
	status   int       // 0 for no answer
	pending  bool      // refused because the time was over
}

// newFleet starts n sites. Every fifth speaks https.
func newFleet(t *testing.T, n int) *fleet {
	t.Helper()
	f := &fleet{
		server: testorigin.Start(t, testorigin.Config{RecordSize: 1 << 15, MaxConns: 1 << 13}),
		texts:  make(map[string]string),
	}
	for variant, pages := range [][]int{{0}, {0, 1, 2}, {2, 4, 6}, {1, 3, 5, 7}} {
		text := fmt.Sprintf("# variant %d\nUser-agent: *\n", variant)
		for _, page := range pages {
			text += fmt.Sprintf("Disallow: /p%d\n", page)
		}
		sum := sha256.Sum256([]byte(text))
		f.texts[hex.EncodeToString(sum[:])] = text
		f.add(text)
	}
	for i := range n {
		cfg := testorigin.SiteConfig{}
		if i%5 == 4 {
			cfg.Scheme = "https"
		}
		f.sites = append(f.sites, f.server.Site(t, cfg))
	}
	return f
}

// add adds the catalogue of behaviours over one text, with the meaning that this gateway must find
// in each.
func (f *fleet) add(text string) {
	for _, b := range testorigin.Catalogue("https", text) {
		switch {
		case b.Name == "status 206", b.Name == "status 304":
			b.Meaning = testorigin.MeansUnreachable
		case strings.HasSuffix(b.Name, " bomb"): // only the first 500 KiB are read
			b.Meaning = testorigin.MeansRules
		}
		f.https = append(f.https, b)
		if !b.NeedsTLS() {
			f.http = append(f.http, b)
		}
	}
	// Half of the answers of real sites are plain, and so are many of the script's behaviours.
	for range 10 {
		f.http = append(f.http, testorigin.OK(text))
		f.https = append(f.https, testorigin.OK(text))
	}
	for range 2 {
		for _, name := range slices.Sorted(maps.Keys(promises)) { // the same script in each run
			p := promises[name]
			b := testorigin.Respond(testorigin.Response{Status: p.status, Header: http.Header{p.field: {p.value}}, Body: []byte(text)})
			b.Name = name
			f.http, f.https = append(f.http, b), append(f.https, b)
		}
	}
}

// promise is what an answer promises about the next one.
type promise struct {
	status       int
	field, value string
	pause        time.Duration // that a failure asks for
}

// promises has, by name, the script's behaviours with a promise to check. A good answer cannot
// shorten its lifetime below the ttl of these gateways, which is less than five minutes.
var promises = map[string]promise{
	"fresh for 2 s":       {status: 200, field: "Cache-Control", value: "public, max-age=2"},
	"fresh for an hour":   {status: 200, field: "Cache-Control", value: "max-age=3600"},
	"stale at once":       {status: 200, field: "Cache-Control", value: "no-store"},
	"absent for 3 s":      {status: 404, field: "Cache-Control", value: "s-maxage=3, max-age=60"},
	"back in 3 s":         {status: 503, field: "Retry-After", value: "3", pause: 3 * time.Second},
	"back before it said": {status: 429, field: "Retry-After", value: "Thu, 01 Jan 1970 00:00:00 GMT"},
}

// pick returns the next behaviour of a site by the script.
func (f *fleet) pick(script *rand.Rand, site int) testorigin.Behaviour {
	if site%5 == 4 {
		return f.https[script.IntN(len(f.https))]
	}
	return f.http[script.IntN(len(f.http))]
}

// begin gives every site its first behaviour.
func (f *fleet) begin(script *rand.Rand) {
	for i, site := range f.sites {
		site.SetRobots(f.pick(script, i))
	}
}

// change plays the script until ctx ends: each site changes once in period on average.
func (f *fleet) change(ctx context.Context, script *rand.Rand, period time.Duration) {
	tick := time.NewTicker(period / time.Duration(len(f.sites)))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			i := script.IntN(len(f.sites))
			f.forking.Lock()
			f.sites[i].SetRobots(f.pick(script, i))
			f.forking.Unlock()
		}
	}
}

// crawl requests random pages of random sites from several clients until ctx ends, each with its
// own seed, and returns all visits.
func (f *fleet) crawl(ctx context.Context, addr string, clients int, seed uint64, pause time.Duration) []visit {
	all := make([][]visit, clients)
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(c)))
			caller := &caller{addr: addr, retry: f.retry}
			defer caller.close()
			for ctx.Err() == nil {
				site, page := random.IntN(len(f.sites)), fmt.Sprintf("/p%d", random.IntN(fleetPages))
				all[c] = append(all[c], f.visit(caller, site, page))
				sleepFor(ctx, time.Duration(random.Int64N(int64(pause))))
			}
		})
	}
	wg.Wait()
	var visits []visit
	for _, v := range all {
		visits = append(visits, v...)
	}
	return visits
}

// visit requests one page. The query identifies the visit in the log and in the origin's record.
func (f *fleet) visit(c *caller, site int, page string) visit {
	v := visit{id: f.lastID.Add(1), site: site, page: page, from: time.Now()}
	status, head, err := c.get(f.url(&v))
	v.to = time.Now()
	if err == nil {
		v.status, v.pending = status, strings.Contains(head.Get("Proxy-Status"), "pending")
	}
	return v
}

func (f *fleet) url(v *visit) string {
	return f.sites[v.site].URL(fmt.Sprintf("%s?v=%d", v.page, v.id))
}

func sleepFor(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// caller is a client with one connection to a gateway. It requests https URLs in absolute form too.
type caller struct {
	addr string
	conn net.Conn
	r    *bufio.Reader

	retry bool // on a new connection, if a used one was closed without an answer
}

func (c *caller) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// get makes one request. A connection that failed, or that the gateway closes, is not used again.
func (c *caller) get(rawURL string) (int, http.Header, error) {
	reused := c.conn != nil
	if !reused {
		conn, err := net.DialTimeout("tcp", c.addr, 5*time.Second)
		if err != nil {
			return 0, nil, err
		}
		c.conn, c.r = conn, bufio.NewReader(conn)
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return 0, nil, err
	}
	_ = c.conn.SetDeadline(time.Now().Add(patience))
	if _, err = io.WriteString(c.conn, "GET "+rawURL+" HTTP/1.1\r\nHost: "+u.Host+"\r\nUser-Agent: "+crawler+"/1.0\r\n\r\n"); err != nil {
		c.close()
		if reused && c.retry {
			return c.get(rawURL)
		}
		return 0, nil, err
	}
	resp, err := http.ReadResponse(c.r, &http.Request{Method: http.MethodGet})
	if err != nil {
		c.close()
		if reused && c.retry {
			return c.get(rawURL)
		}
		return 0, nil, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil || resp.Close {
		c.close()
	}
	return resp.StatusCode, resp.Header, err
}

// parsed has the rulesets of all texts that the oracle has met.
var parsed sync.Map

// textAllows reports whether a text permits a page.
func textAllows(text, page string) bool {
	rules, ok := parsed.Load(text)
	if !ok {
		rules, _ = parsed.LoadOrStore(text, robotstxt.Parse([]byte(text)))
	}
	r, ok := rules.(*robotstxt.Ruleset)
	return ok && r.Match([]string{"Tester"}, page).Allowed
}
