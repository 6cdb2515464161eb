package integration

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// rightPassword is that of every agent of these tests.
const rightPassword = "right"

// Two sources that both reach a gateway on loopback.
const (
	sourceOne = "127.0.0.1"
	sourceTwo = "127.0.0.2"
)

// hashes has the hash of the right password by algorithm. A hash takes a second, so tests share them.
var hashes sync.Map // of string

// hashed gives a hash as an operator makes it, with the parameters that Caddy takes by default.
func hashed(t *testing.T, algorithm string) string {
	t.Helper()
	if hash, ok := hashes.Load(algorithm); ok {
		return hash.(string)
	}
	hash := makeHash(t, algorithm)
	hashes.Store(algorithm, hash)
	return hash
}

func makeHash(t *testing.T, algorithm string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), binary, "hash-password", "--plaintext", rightPassword, "--algorithm", algorithm).Output()
	if err != nil {
		t.Fatalf("hash-password: %v", err)
	}
	return strings.TrimSpace(string(out))
}

// passwordConfig has an agent told by credentials for each user, by the algorithm that the user's name begins with.
func passwordConfig(t *testing.T, users ...string) gatewayConfig {
	t.Helper()
	var site strings.Builder
	for _, user := range users {
		algorithm, _, _ := strings.Cut(user, "-")
		fmt.Fprintf(&site, "agent %s {\nuser_agent *\ncredential %[1]s %s\n}\n", user, hashed(t, algorithm))
	}
	return gatewayConfig{Engine: "pace {\nrate off\nconcurrency 1000\n}", Site: site.String()}
}

// guest is a client of one source that shows credentials with each request.
func (g *gateway) guest(source, user, password string) *http.Client {
	dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
	base := &http.Transport{
		Proxy:       http.ProxyURL(&url.URL{Scheme: "http", Host: g.addr, User: url.UserPassword(user, password)}),
		DialContext: dialer.DialContext,
	}
	g.t.Cleanup(base.CloseIdleConnections)
	return &http.Client{Transport: base, Timeout: patience}
}

// guess sends wrong passwords, each a new one, from workers connections at once until the returned function is called.
func (g *gateway) guess(source string, users []string, workers int, rawURL string) (stop func()) {
	ctx, cancel := context.WithCancel(g.t.Context())
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				client := g.guest(source, users[(w+i)%len(users)], fmt.Sprintf("wrong %d %d", w, i))
				a, err := tryGet(ctx, client, rawURL)
				if err == nil && a.status == http.StatusOK {
					g.t.Errorf("a wrong password was answered %d", a.status)
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

// hashTime is how long a hash of bcrypt takes here and now: 1 s on an idle machine, more where other tests run.
func hashTime(t *testing.T) time.Duration {
	t.Helper()
	began := time.Now()
	makeHash(t, "bcrypt")
	return max(time.Since(began), time.Second)
}

// inTime fails unless the credentials are answered with 200 within limit.
func (g *gateway) inTime(what string, limit time.Duration, source, user, rawURL string) {
	g.t.Helper()
	client := g.guest(source, user, rightPassword)
	client.Timeout = 3 * limit
	began := time.Now()
	a, err := tryGet(g.t.Context(), client, rawURL)
	took := time.Since(began)
	g.t.Logf("%s: %s from %s after %v, limit %v", what, user, source, took.Round(time.Millisecond), limit)
	if err != nil || a.status != http.StatusOK || took > limit {
		g.t.Errorf("%s: %s from %s: status %d, error %v, after %v; want 200 within %v", what, user, source, a.status, err, took, limit)
	}
}

// TestPasswordsWrongOnesInParallel has sixty connections guess without pause, at names that exist and names that do not.
// Right credentials are still accepted within five seconds on a machine that computes a hash in one: those never seen
// before and those known before a reload.
func TestPasswordsWrongOnesInParallel(t *testing.T) {
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
			g := startGateway(t, config)
			limit := 5 * hashTime(t)
			stop := g.guess(sourceOne, tt.guessed, 60, site.URL("/guess"))
			defer stop()
			eventually(t, "a wrong password to be answered", func() bool { return len(g.readLogs()) > 0 })
			g.inTime("never seen, other source", limit, sourceTwo, "bcrypt-two", site.URL("/1"))
			g.inTime("never seen, same source", limit, sourceOne, "argon2id-one", site.URL("/2"))
			g.inTime("never seen, other source", limit, sourceTwo, "argon2id-two", site.URL("/3"))
			g.inTime("never seen, same source", limit, sourceOne, "bcrypt-one", site.URL("/4"))
			if err := g.reload(config); err != nil {
				t.Fatal(err)
			}
			for i, user := range users {
				g.inTime("after a reload", limit, []string{sourceOne, sourceTwo}[i%2], user, site.URL("/5"))
			}
		})
	}
}

// TestPasswordsSameWrongOne has sixty connections with the same wrong password, as a misconfigured crawler has them: they
// cost one hash in all, and none when they come again.
func TestPasswordsSameWrongOne(t *testing.T) {
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	g := startGateway(t, passwordConfig(t, "bcrypt-one"))
	for _, tt := range []struct {
		what string
		most time.Duration // of the processor time of the gateway
	}{
		{"at first", 5 * time.Second}, // one hash takes 1 s on the machine of the first measurement
		{"again", time.Second},
	} {
		before := g.usage().cpu
		var group sync.WaitGroup
		for range 60 {
			group.Go(func() {
				a, err := tryGet(t.Context(), g.guest(sourceOne, "bcrypt-one", "wrong"), site.URL("/"))
				if err != nil || a.status != http.StatusProxyAuthRequired {
					t.Errorf("%s: status %d, error %v", tt.what, a.status, err)
				}
			})
		}
		group.Wait()
		used := g.usage().cpu - before
		t.Logf("%s: %v of processor time", tt.what, used)
		if used > tt.most {
			t.Errorf("%s: sixty times the same wrong password took %v of processor time, want at most %v", tt.what, used, tt.most)
		}
	}
}

// TestPasswordsBusy asks for more hashes at once than may wait: the rest is refused at once, with that reason.
func TestPasswordsBusy(t *testing.T) {
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	g := startGateway(t, passwordConfig(t, "bcrypt-one"))
	stop := g.guess(sourceOne, []string{"bcrypt-one"}, 200, site.URL("/guess"))
	defer stop()
	var busy answer
	var took time.Duration
	asked := 0 // a password that has had its turn is known, and answered 407
	eventually(t, "a refusal", func() bool {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		asked++
		a, err := tryGet(ctx, g.guest(sourceOne, "bcrypt-one", fmt.Sprintf("one more %d", asked)), site.URL("/"))
		took, busy = time.Since(began), a
		return err == nil && a.status == http.StatusServiceUnavailable
	})
	if took > scheduling {
		t.Errorf("it took %v", took)
	}
	if busy.header.Get("Retry-After") == "" || !strings.HasPrefix(busy.header.Get("Proxy-Status"), "crawlgate; error=http_request_denied;") {
		t.Errorf("Retry-After %q, Proxy-Status %q", busy.header.Get("Retry-After"), busy.header.Get("Proxy-Status"))
	}
	eventually(t, "a refusal of CONNECT", func() bool {
		asked++
		credentials := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "bcrypt-one:one more %d", asked))
		refused, err := g.dial().ask(http.MethodConnect,
			"CONNECT site.test:443 HTTP/1.1\r\nHost: site.test:443\r\nProxy-Authorization: Basic "+credentials+"\r\n\r\n")
		return err == nil && refused.status == http.StatusServiceUnavailable && refused.header.Get("Retry-After") != ""
	})
	stop()
	if !slices.ContainsFunc(g.readLogs(), func(l logLine) bool { return l.Robots.Reason == enforce.ReasonCredentialsBusy }) {
		t.Error("no line of the access log says so")
	}
}
