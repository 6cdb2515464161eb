//go:build slow

package access

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// Two sources that both reach a gateway on loopback.
const (
	sourceOne = "127.0.0.1"
	sourceTwo = "127.0.0.2"
)

// of string

// passwordConfig returns a configuration with an agent for each user. A user's name begins with the
// algorithm of the password's hash.
func passwordConfig(t *testing.T, users ...string) rig.Config {
	t.Helper()
	var site strings.Builder
	for _, user := range users {
		algorithm, _, _ := strings.Cut(user, "-")
		fmt.Fprintf(&site, "agent %s {\nuser_agent *\ncredential %[1]s %s\n}\n", user, rig.Hashed(t, algorithm))
	}
	return rig.Config{Engine: "pace {\nrate off\nconcurrency 1000\n}", Site: site.String()}
}

// guest returns a client that connects from source and sends credentials with each request.
func guest(g *rig.Gateway, source, user, password string) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	base := &http.Transport{
		Proxy:       http.ProxyURL(&url.URL{Scheme: "http", Host: g.Addr, User: url.UserPassword(user, password)}),
		DialContext: dialer.DialContext,
	}
	g.T.Cleanup(base.CloseIdleConnections)
	return &http.Client{Transport: base, Timeout: rig.Patience}
}

// guess sends wrong passwords, each a different one, on several connections at once, until the
// returned function is called.
func guess(g *rig.Gateway, source string, users []string, workers int, rawURL string) (stop func()) {
	ctx, cancel := context.WithCancel(g.T.Context())
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				client := guest(g, source, users[(w+i)%len(users)], fmt.Sprintf("wrong %d %d", w, i))
				a, err := rig.TryGet(ctx, client, rawURL)
				if err == nil && a.Status == http.StatusOK {
					g.T.Errorf("a wrong password got status 200")
				}
				client.CloseIdleConnections()
			}
		})
	}
	return func() {
		cancel()
		group.Wait()
	}
}

// hashTime measures how long a hash of bcrypt takes now: 1 s on an idle machine, longer beside
// other tests.
func hashTime(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	rig.MakeHash(t, "bcrypt")
	return max(time.Since(began), time.Second)
}

// inTime fails the test unless a request with the credentials gets status 200 within the limit.
func inTime(g *rig.Gateway, what string, limit time.Duration, source, user, rawURL string) {
	g.T.Helper()
	client := guest(g, source, user, rig.RightPassword)
	client.Timeout = 3 * limit
	began := time.Now()
	a, err := rig.TryGet(g.T.Context(), client, rawURL)
	took := time.Since(began)
	g.T.Logf("%s: %s from %s after %v, limit %v", what, user, source, took.Round(time.Millisecond), limit)
	if err != nil || a.Status != http.StatusOK || took > limit {
		g.T.Errorf("%s: %s from %s: status %d, error %v, after %v; want 200 within %v", what, user, source, a.Status, err, took, limit)
	}
}

// TestPasswordsWrongOnesInParallel guesses passwords on sixty connections without a pause, for
// users that exist and for others. Right credentials must still be accepted within five seconds on
// a machine that computes a hash in one second, both before the gateway has seen them and after a
// reload.
func TestPasswordsWrongOnesInParallel(t *testing.T) {
	rig.LoadsMachine(t)
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	users := []string{"bcrypt-one", "bcrypt-two", "argon2id-one", "argon2id-two"}
	strangers := make([]string, 60)
	for i := range strangers {
		strangers[i] = fmt.Sprintf("stranger-%d", i)
	}
	for _, tt := range []struct {
		name    string
		guessed []string
	}{
		{"one user", []string{"bcrypt-one"}},
		{"users that do not exist", strangers},
	} {
		t.Run(tt.name, func(t *testing.T) {
			config := passwordConfig(t, users...)
			g := rig.New(t, config)
			limit := 5 * hashTime(t)
			stop := guess(g, sourceOne, tt.guessed, 60, site.URL("/guess"))
			defer stop()
			rig.Eventually(t, "a wrong password to be answered", func() bool { return len(g.ReadLogs()) > 0 })
			inTime(g, "never seen, other source", limit, sourceTwo, "bcrypt-two", site.URL("/1"))
			inTime(g, "never seen, same source", limit, sourceOne, "argon2id-one", site.URL("/2"))
			inTime(g, "never seen, other source", limit, sourceTwo, "argon2id-two", site.URL("/3"))
			inTime(g, "never seen, same source", limit, sourceOne, "bcrypt-one", site.URL("/4"))
			if err := g.Reload(config); err != nil {
				t.Fatal(err)
			}
			for i, user := range users {
				inTime(g, "after a reload", limit, []string{sourceOne, sourceTwo}[i%2], user, site.URL("/5"))
			}
		})
	}
}

// TestPasswordsSameWrongOne opens sixty connections with the same wrong password, like a
// misconfigured crawler. They cost one hash in total, and none when they are repeated.
func TestPasswordsSameWrongOne(t *testing.T) {
	rig.LoadsMachine(t)
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	g := rig.New(t, passwordConfig(t, "bcrypt-one"))
	for _, tt := range []struct {
		what string
		most time.Duration // of the processor time of the gateway
	}{
		{"at first", 5 * time.Second}, // one hash takes 1 s on the machine of the first measurement
		{"again", time.Second},
	} {
		before := g.Usage().Cpu
		var group sync.WaitGroup
		for range 60 {
			group.Go(func() {
				a, err := rig.TryGet(t.Context(), guest(g, sourceOne, "bcrypt-one", "wrong"), site.URL("/"))
				if err != nil || a.Status != http.StatusProxyAuthRequired {
					t.Errorf("%s: status %d, error %v, want 407", tt.what, a.Status, err)
				}
			})
		}
		group.Wait()
		used := g.Usage().Cpu - before
		t.Logf("%s: %v of processor time", tt.what, used)
		if used > tt.most {
			t.Errorf("%s: sixty requests with one wrong password took %v of processor time, want at most %v", tt.what, used, tt.most)
		}
	}
}

// TestPasswordsBusy sends more passwords at once than may wait for a hash. The gateway refuses the
// rest at once.
func TestPasswordsBusy(t *testing.T) {
	rig.LoadsMachine(t)
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	g := rig.New(t, passwordConfig(t, "bcrypt-one"))
	stop := guess(g, sourceOne, []string{"bcrypt-one"}, 200, site.URL("/guess"))
	defer stop()
	var busy rig.Answer
	var took time.Duration
	asked := 0 // a password that was hashed once gets 407
	rig.Eventually(t, "a refusal", func() bool {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		asked++
		a, err := rig.TryGet(ctx, guest(g, sourceOne, "bcrypt-one", fmt.Sprintf("one more %d", asked)), site.URL("/"))
		took, busy = time.Since(began), a
		return err == nil && a.Status == http.StatusServiceUnavailable
	})
	if took > rig.Scheduling {
		t.Errorf("the refusal took %v, want at most %v", took, rig.Scheduling)
	}
	if busy.Header.Get("Retry-After") == "" || !strings.HasPrefix(busy.Header.Get("Proxy-Status"), "crawlgate; error=http_request_denied;") {
		t.Errorf("Retry-After %q, Proxy-Status %q", busy.Header.Get("Retry-After"), busy.Header.Get("Proxy-Status"))
	}
	rig.Eventually(t, "a refusal of CONNECT", func() bool {
		asked++
		credentials := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "bcrypt-one:one more %d", asked))
		refused, err := g.Dial().Ask(http.MethodConnect,
			"CONNECT site.test:443 HTTP/1.1\r\nHost: site.test:443\r\nProxy-Authorization: Basic "+credentials+"\r\n\r\n")
		return err == nil && refused.Status == http.StatusServiceUnavailable && refused.Header.Get("Retry-After") != ""
	})
	stop()
	if !slices.ContainsFunc(g.ReadLogs(), func(l rig.LogLine) bool { return l.Robots.Reason == enforce.ReasonCredentialsBusy }) {
		t.Error("no line of the access log has the reason credentials_busy")
	}
}
