//go:build slow

package https

import (
	"bytes"
	"context"
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/egress/mint"
	"github.com/crawlgate/crawlgate/integration/rig"
)

// ownIssuer signs certificates for a minter.
type ownIssuer struct {
	chain []*x509.Certificate
	key   crypto.Signer
}

func (i *ownIssuer) Chain() []*x509.Certificate { return i.chain }
func (i *ownIssuer) Signer() crypto.Signer      { return i.key }

func newOwnIssuer(t *testing.T) *ownIssuer {
	t.Helper()
	key := rig.NewKey(t)
	return &ownIssuer{key: key, chain: []*x509.Certificate{rig.Sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "issuer"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}, nil, key, key)}}
}

// TestHTTPSMintManyHosts mints for a tenth more hosts than the minter keeps (100,000 in full). No
// certificate serves two hosts, and the memory is bounded. It runs alone, because it measures
// memory.
func TestHTTPSMintManyHosts(t *testing.T) {
	hosts := mint.MaxLeaves + mint.MaxLeaves/10
	if rig.Long() {
		hosts = 100_000
	}
	minter, err := mint.New(newOwnIssuer(t))
	if err != nil {
		t.Fatal(err)
	}
	base := liveHeap()
	seen := make(map[[sha256.Size]byte]bool, hosts)
	began := time.Now()
	for i := range hosts {
		cert, err := minter.Certificate(fmt.Sprintf("www-%d.example", i))
		if err != nil {
			t.Fatal(err)
		}
		seen[sha256.Sum256(cert.Certificate[0])] = true
	}
	each := time.Since(began) / time.Duration(hosts)
	if len(seen) != hosts {
		t.Errorf("%d different certificates for %d hosts", len(seen), hosts)
	}
	clear(seen) // its memory must not count below
	grown := liveHeap() - base
	t.Logf("%d hosts: %v each; %d certificates kept, in %.1f MiB", hosts, each, minter.Len(), float64(grown)/(1<<20))
	if minter.Len() > mint.MaxLeaves || grown > 4<<10*mint.MaxLeaves {
		t.Errorf("the minter keeps %d certificates in %d KiB, want at most %d, of 4 KiB each", minter.Len(), grown>>10, mint.MaxLeaves)
	}
	runtime.KeepAlive(minter)
}

func liveHeap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestHTTPSInterceptorManyHosts is TestHTTPSMintManyHosts with a handshake for each host.
func TestHTTPSInterceptorManyHosts(t *testing.T) {
	hosts := 2000
	if rig.Long() {
		hosts = 100_000
	}
	issuer := newOwnIssuer(t)
	minter, err := mint.New(issuer)
	if err != nil {
		t.Fatal(err)
	}
	interceptor := egress.NewInterceptor(&http.Server{
		Handler: http.NotFoundHandler(), ReadHeaderTimeout: rig.Patience,
	})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tunnel, err := egress.Accept(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		host, _, _ := net.SplitHostPort(r.Host)
		if err := interceptor.ServeTLS(r.Context(), tunnel, &egress.ConnectContext{Host: host, Port: 443, Outer: r, Minter: minter}); err != nil && !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	g := &rig.Gateway{T: t, Addr: server.Listener.Addr().String()}
	roots := x509.NewCertPool()
	roots.AddCert(issuer.chain[0])
	base := liveHeap()

	var mu sync.Mutex
	seen := make(map[string]bool, hosts)
	var turn atomic.Int64
	var load sync.WaitGroup
	for range 4 {
		load.Go(func() {
			for i := turn.Add(1); i <= int64(hosts); i = turn.Add(1) {
				leaf, err := leafOf(g, fmt.Sprintf("www-%d.example", i), roots)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				seen[leaf.SerialNumber.String()] = true
				mu.Unlock()
			}
		})
	}
	load.Wait()
	if len(seen) != hosts {
		t.Errorf("%d different certificates for %d hosts", len(seen), hosts)
	}
	seen = nil
	if err := interceptor.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	server.Close()
	grown := liveHeap() - base
	t.Logf("%d hosts: %d certificates kept, in %.1f MiB", hosts, minter.Len(), float64(grown)/(1<<20))
	if grown > 64<<20 {
		t.Errorf("the memory has grown by %d MiB, want at most 64 MiB", grown>>20)
	}
	runtime.KeepAlive(minter)
}

// endless is a reader without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// bulk serves large bodies: GET /down/N sends N bytes, PUT /up answers with the number of bytes
// received.
func bulk(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut {
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
		return
	}
	var n int64
	_, _ = fmt.Sscanf(r.URL.Path, "/down/%d", &n)
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	_, _ = io.CopyN(w, endless{}, n)
}

// TestHTTPSVolume moves a body larger than the gateway's memory (a GiB in full) in each direction
// through interception. The gateway's memory must not grow.
func TestHTTPSVolume(t *testing.T) {
	rig.LoadsMachine(t)
	size := int64(128 << 20)
	if rig.Long() {
		size = 1 << 30
	}
	authority := rig.NewTestCA(t)
	site := rig.StartSecureSite(t, authority, http.HandlerFunc(bulk))
	g := rig.New(t, rig.Config{Engine: rig.Unpaced}.Trusting(authority))
	for version := 1; version <= 2; version++ {
		client := g.SecureClient("Tester/1.0", version)
		rig.Get(t, client, site.At("/down/1"))
		before, began := g.Usage(), time.Now()
		if n := download(t, client, site.At(fmt.Sprintf("/down/%d", size)), io.Discard); n != size {
			t.Errorf("HTTP %d: %d bytes came down, want %d", version, n, size)
		}
		down := time.Since(began)
		began = time.Now()
		if got := upload(t, client, site.At("/up"), io.LimitReader(endless{}, size), size); got != strconv.FormatInt(size, 10) {
			t.Errorf("HTTP %d: %s bytes went up, want %d", version, got, size)
		}
		up, after, mebibytes := time.Since(began), g.Usage(), float64(size>>20)
		t.Logf("HTTP %d inside: down %.0f MiB/s, up %.0f MiB/s; CPU %.2f s a GiB; memory at most %.1f MiB before, %.1f MiB after", version,
			mebibytes/down.Seconds(), mebibytes/up.Seconds(), (after.Cpu-before.Cpu).Seconds()*512/mebibytes, float64(before.PeakRSS)/(1<<20), float64(after.PeakRSS)/(1<<20))
		if grown := after.PeakRSS - before.PeakRSS; grown > 48<<20 && !rig.RaceEnabled {
			t.Errorf("HTTP %d: the gateway's memory has grown by %d MiB, want at most 48 MiB", version, grown>>20)
		}
		rig.HangUp(client)
	}
	g.Stop()
	for _, l := range g.ReadLogs() {
		if l.Request.Method == http.MethodConnect && (l.BytesRead < size || l.Size < size) {
			t.Errorf("a tunnel's line has %d and %d bytes: %s", l.BytesRead, l.Size, l.Raw)
		}
	}
}

func download(t *testing.T, c *http.Client, url string, to io.Writer) int64 {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	n, err := io.Copy(to, resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%s: status %d, error %v", url, resp.StatusCode, err)
	}
	return n
}

func upload(t *testing.T, c *http.Client, url string, body io.Reader, size int64) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, url, body)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength = size
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	a, err := rig.ReadAnswer(resp)
	if err != nil {
		t.Fatal(err)
	}
	return a.Body
}

// TestHTTPSIdleTunnels keeps a thousand tunnels silent for a while. All of them must still work.
func TestHTTPSIdleTunnels(t *testing.T) {
	t.Parallel()
	const tunnels = 1000
	idle := 5 * time.Second
	if rig.Long() {
		idle = time.Minute
	}
	authority := rig.NewTestCA(t)
	site := rig.StartSecureSite(t, authority, nil)
	g := rig.New(t, rig.Config{Engine: rig.Unpaced}.Trusting(authority))
	request := "GET /news/a.html HTTP/1.1\r\nHost: " + site.Authority() + "\r\nUser-Agent: Tester/1.0\r\n\r\n"
	config := &tls.Config{RootCAs: g.Authority(), ServerName: "localhost"}
	before := g.Usage()
	open := make([]*rig.Wire, tunnels)
	each := func(do func(i int) error) {
		var turn atomic.Int64
		var load sync.WaitGroup
		for range 8 {
			load.Go(func() {
				for i := turn.Add(1) - 1; i < tunnels; i = turn.Add(1) - 1 {
					if err := do(int(i)); err != nil {
						t.Errorf("tunnel %d: %v", i, err)
					}
				}
			})
		}
		load.Wait()
	}
	each(func(i int) error {
		inner, err := g.Tunnel(site.Authority()).Over(t, config)
		if err != nil {
			return err
		}
		_ = inner.SetDeadline(time.Now().Add(3 * time.Minute))
		open[i] = inner
		_, err = inner.Ask(http.MethodGet, request)
		return err
	})
	if n := g.Metric("crawlgate_tunnels_open"); n != tunnels {
		t.Errorf("%v tunnels are open by the metrics, want %d", n, tunnels)
	}
	busy := g.Usage()
	time.Sleep(idle) // the test is about this wait
	rested := g.Usage()
	each(func(i int) error {
		if open[i] == nil {
			return nil
		}
		a, err := open[i].Ask(http.MethodGet, request)
		if err == nil && a.Status != http.StatusOK {
			err = fmt.Errorf("status %d", a.Status)
		}
		return err
	})
	t.Logf("%d tunnels: %.1f KiB each at the peak, %.0f ms of CPU in %v of silence", tunnels,
		float64(busy.PeakRSS-before.PeakRSS)/tunnels/1024, (rested.Cpu-busy.Cpu).Seconds()*1e3, idle)
	if grown := busy.PeakRSS - before.PeakRSS; grown > tunnels*160<<10 && !rig.RaceEnabled {
		t.Errorf("the gateway's memory has grown by %d KiB a tunnel, want at most 160 KiB", grown/tunnels>>10)
	}
	for _, w := range open {
		if w != nil {
			_ = w.Close()
		}
	}
	rig.Eventually(t, "the tunnels to be closed", func() bool { return g.Metric("crawlgate_tunnels_open") == 0 })
}

// TestHTTPSSlowPeers lets clients read and write a little at a time. The gateway must not buffer
// the rest for them, and must not delay others, even within the same HTTP/2 connection.
func TestHTTPSSlowPeers(t *testing.T) {
	t.Parallel()
	const size = 256 << 20
	authority := rig.NewTestCA(t)
	var sent atomic.Int64
	site := rig.StartSecureSite(t, authority, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			_, _ = io.CopyN(io.MultiWriter(w, counter{&sent}), endless{}, size)
			return
		}
		bulk(w, r)
	}))
	g := rig.New(t, rig.Config{Engine: rig.Unpaced}.Trusting(authority))
	for version := 1; version <= 2; version++ {
		sent.Store(0)
		client := g.SecureClient("Tester/1.0", version)
		rig.Get(t, client, site.At("/down/1"))
		before := g.Usage()
		ctx, leave := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, site.At("/slow"), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var trickle sync.WaitGroup
		const text = "text in small pieces arrives as well"
		trickle.Go(func() {
			if got := upload(t, client, site.At("/up"), &sips{text: []byte(text)}, int64(len(text))); got != strconv.Itoa(len(text)) {
				t.Errorf("HTTP %d: %s bytes arrived of a slow upload", version, got)
			}
		})
		var sip [1 << 10]byte
		for range 20 {
			if _, err := io.ReadFull(resp.Body, sip[:]); err != nil {
				t.Fatal(err)
			}
			if a := rig.Get(t, client, site.At("/down/10")); len(a.Body) != 10 {
				t.Errorf("HTTP %d: a request beside the slow one got %+v", version, a)
			}
			time.Sleep(50 * time.Millisecond) // the slow client
		}
		trickle.Wait()
		after := g.Usage()
		if n := sent.Load(); n > 48<<20 {
			t.Errorf("HTTP %d: the site sent %d MiB to a client that read 20 KiB", version, n>>20)
		}
		t.Logf("HTTP %d: the site sent %d KiB; memory at most %.1f MiB before, %.1f MiB after", version, sent.Load()>>10,
			float64(before.PeakRSS)/(1<<20), float64(after.PeakRSS)/(1<<20))
		if grown := after.PeakRSS - before.PeakRSS; grown > 32<<20 && !rig.RaceEnabled {
			t.Errorf("HTTP %d: the gateway's memory has grown by %d MiB, want at most 32 MiB", version, grown>>20)
		}
		leave()
		_ = resp.Body.Close()
	}
}

// counter counts the bytes written.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) {
	c.n.Add(int64(len(p)))
	return len(p), nil
}

// sips is a text that arrives slowly, one byte at a time.
type sips struct{ text []byte }

func (s *sips) Read(p []byte) (int, error) {
	if len(s.text) == 0 {
		return 0, io.EOF
	}
	time.Sleep(20 * time.Millisecond)
	n := copy(p[:1], s.text)
	s.text = bytes.Clone(s.text[n:])
	return n, nil
}
