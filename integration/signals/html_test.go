package signals

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// aPage is a page with directives in its head. It is longer than the part that the gateway reads.
var aPage = []byte("<!DOCTYPE html><html><head><title>A page</title><meta name=Robots content='NOINDEX, noai'>" +
	"<meta name=seeker content=noarchive></head><body>" + strings.Repeat("<p>Some text, and more of it.</p>\n", 20_000) + "</body></html>")

// TestHTML checks that the tags of a page are logged. If answers are held, the crawler gets the
// tags too, and they can refuse the answer. The audit computes them again.
func TestHTML(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	site := server.Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: *\nDisallow: /x\n"))
	kind := http.Header{"Content-Type": {"text/html; charset=utf-8"}}
	page := func(path string, body []byte) {
		site.SetPath(path, testorigin.Respond(testorigin.Response{Status: http.StatusOK, Header: kind, Body: body}))
	}
	page("/large", aPage)
	page("/small", []byte("<p>no head"))
	page("/tdm", []byte("<html><head><meta name=tdm-reservation content=1></head><body>"))
	for _, mode := range []string{"off", "log", "hold"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			g := rig.New(t, rig.Config{Engine: rig.Unpaced + "\nsignals {\nhtml " + mode + "\n}", Site: `
				agent trainer {
					purpose train-ai
					preferences deny
				}
				agent seeker {
					purpose search
				}`})
			held := mode == "hold"
			shown := func(field string) string {
				if !held {
					return ""
				}
				return field
			}
			for _, tt := range []struct {
				agent, path string
				refused     bool
				shown       string
			}{
				{"trainer", "/large", held, ""},
				{"seeker", "/large", false, shown("search=n;from=meta, archive=n;from=meta, noindex, noarchive, noai")},
				{"seeker", "/small", false, ""},
				{"trainer", "/tdm", held, ""},
			} {
				a := g.MustFetch(tt.agent+"/1.0", site.URL(tt.path))
				got := strings.ReplaceAll(a.Header.Get("Crawlgate-Signals"), "train-ai=n;from=meta, ", "")
				if refused := a.Status == http.StatusForbidden; refused != tt.refused || !refused && (a.Status != http.StatusOK || got != tt.shown) {
					t.Errorf("%s%s: status %d, signals %q, want %q", tt.agent, tt.path, a.Status, got, tt.shown)
				}
			}
			g.Stop()
			text, err := os.ReadFile(g.AccessLog())
			if err != nil {
				t.Fatal(err)
			}
			logged := strings.Contains(string(text), `"meta robots: NOINDEX, noai"`) && strings.Contains(string(text), `"meta seeker: noarchive"`) &&
				strings.Contains(string(text), `"preference_conflict":"train-ai=n;from=meta"`)
			if logged != (mode != "off") || strings.Contains(string(text), `"signals_cut":true`) {
				t.Errorf("the log has wrong tags: %s", text)
			}
			if r := rig.Audit(t, "--store", g.Store(), g.AccessLog()); r.Status != 0 || len(r.Findings) > 0 {
				t.Errorf("the audit returned %+v", r)
			}
			forged := filepath.Join(rig.TempDir(t), "access.log")
			if err := os.WriteFile(forged, bytes.ReplaceAll(text, []byte("meta seeker: noarchive"), []byte("meta seeker: nothing")), 0o600); err != nil {
				t.Fatal(err)
			}
			if r := rig.Audit(t, "--store", g.Store(), forged); len(r.Findings) > 0 != logged {
				t.Errorf("the audit of a forged log returned %+v", r)
			}
		})
	}
}

// endings are the suffixes of files in a coding, as Caddy expects them.
var endings = map[string]string{"gzip": ".gz", "br": ".br", "zstd": ".zst"}

// writePages writes the page and its coded forms into a folder.
func writePages(t *testing.T, dir string) {
	t.Helper()
	files := map[string][]byte{"page.html": aPage, "robots.txt": []byte("User-agent: *\nDisallow: /x\n")}
	for coding, ending := range endings {
		files["page.html"+ending] = testorigin.Encode(coding, aPage)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// webServer is a server of another project, with a port for http and one for https.
type webServer struct{ plain, secure string }

// startServer runs a server's command with a configuration whose files are in dir.
func startServer(t *testing.T, dir, config, ready string, args ...string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "config"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
	var said strings.Builder
	cmd.Stderr = &said
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // nginx then ends its workers
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Wait() // the context has ended
		if t.Failed() {
			t.Log(said.String())
		}
	})
	rig.Eventually(t, args[0]+" answers", func() bool {
		a, err := rig.TryGet(t.Context(), http.DefaultClient, "http://"+ready+"/robots.txt")
		return err == nil && a.Status == http.StatusOK
	})
}

// startCaddy serves the pages with Caddy's file server: uncoded, coded in advance, and coded for
// the request.
func startCaddy(t *testing.T, a *rig.TestCA) webServer {
	t.Helper()
	dir, s := rig.TempDir(t), webServer{rig.FreePort(t), rig.FreePort(t)}
	writePages(t, dir)
	certificate, key := authorityFiles(t, a, dir)
	startServer(t, dir, fmt.Sprintf(`{
	admin off
	auto_https off
	persist_config off
}
(pages) {
	bind 127.0.0.1
	root * %[3]s
	handle_path /encoded/* {
		encode zstd gzip
		file_server
	}
	file_server {
		precompressed br zstd gzip
	}
}
http://%[1]s {
	import pages
}
https://%[2]s {
	import pages
	tls %[4]s %[5]s
}
`, s.plain, s.secure, dir, certificate, key), s.plain, rig.Binary, "run", "--config", "config", "--adapter", "caddyfile")
	return s
}

// startNginx serves the pages with nginx, coded in advance or, for gzip, for the request.
func startNginx(t *testing.T, a *rig.TestCA) webServer {
	t.Helper()
	nginx := rig.Need(t, "nginx")
	dir, s := rig.TempDir(t), webServer{rig.FreePort(t), rig.FreePort(t)}
	writePages(t, dir)
	certificate, key := authorityFiles(t, a, dir)
	startServer(t, dir, fmt.Sprintf(`daemon off;
user root; # the folder is its own; where others start nginx, it says that it ignores this
pid %[1]s/pid;
error_log stderr;
worker_processes 1;
events {}
http {
	access_log off;
	client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
	types { text/html html gz br zst; }
	server {
		listen %[2]s;
		listen %[3]s ssl http2;
		ssl_certificate %[4]s;
		ssl_certificate_key %[5]s;
		root %[1]s;
		location ~ \.gz$ { add_header Content-Encoding gzip; }
		location ~ \.br$ { add_header Content-Encoding br; }
		location ~ \.zst$ { add_header Content-Encoding zstd; }
		location /encoded/ { alias %[1]s/; gzip on; }
	}
}
`, dir, s.plain, s.secure, certificate, key), s.plain, nginx, "-c", filepath.Join(dir, "config"), "-e", "stderr", "-p", dir)
	return s
}

// authorityFiles writes a certificate for loopback and its key.
func authorityFiles(t *testing.T, a *rig.TestCA, dir string) (certificate, key string) {
	t.Helper()
	c := a.Issue(t, []string{"127.0.0.1"}, nil)
	der, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certificate, key = filepath.Join(dir, "origin.crt"), filepath.Join(dir, "origin.key")
	rig.WritePEM(t, certificate, "CERTIFICATE", c.Certificate[0])
	rig.WritePEM(t, key, "PRIVATE KEY", der)
	return certificate, key
}

// TestHTMLPassesUnchanged checks that a page of a real server reaches the crawler byte for byte, in
// every coding and version of HTTP, while its tags are read.
func TestHTMLPassesUnchanged(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	servers := map[string]webServer{"caddy": startCaddy(t, authority), "nginx": startNginx(t, authority)}
	trust := x509.NewCertPool()
	trust.AddCert(authority.Cert)
	direct := &http.Client{Transport: &http.Transport{
		DisableCompression: true, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: trust},
	}}
	t.Cleanup(direct.CloseIdleConnections)
	for _, mode := range []string{"log", "hold"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			g := rig.New(t, rig.Config{Engine: rig.Unpaced + "\nsignals {\nhtml " + mode + "\n}"}.Trusting(authority))
			clients := map[string]*http.Client{
				"http": g.Client("Seeker/1.0"), "https 1": g.SecureClient("Seeker/1.0", 1), "https 2": g.SecureClient("Seeker/1.0", 2),
			}
			asked := 0
			for name, server := range servers {
				for coding, ending := range map[string]string{"": "", "gzip": ".gz", "br": ".br", "zstd": ".zst"} {
					path := "/page.html"
					if name == "nginx" {
						path += ending
					}
					for _, path := range []string{path, "/encoded/page.html"} {
						for version, client := range clients {
							u := url.URL{Scheme: "https", Host: server.secure, Path: path}
							if version == "http" {
								u = url.URL{Scheme: "http", Host: server.plain, Path: path}
							}
							passesUnchanged(t, version+" "+coding, client, direct, u.String(), coding)
							asked++
						}
					}
				}
			}
			g.Stop()
			text, err := os.ReadFile(g.AccessLog())
			if err != nil {
				t.Fatal(err)
			}
			if read := strings.Count(string(text), `"meta robots: NOINDEX, noai"`); read != asked {
				t.Errorf("the log has the tags of %d pages, want %d", read, asked)
			}
		})
	}
}

// passesUnchanged compares a page through the gateway with the page without it.
func passesUnchanged(t *testing.T, name string, through, direct *http.Client, rawURL, coding string) {
	t.Helper()
	var answers [2]rig.Answer
	for i, c := range []*http.Client{direct, through} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, rawURL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Accept-Encoding", coding)
		resp, err := c.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if answers[i], err = rig.ReadAnswer(resp); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	want, got := answers[0], answers[1]
	if want.Status != http.StatusOK || got.Status != want.Status || got.Body != want.Body ||
		got.Header.Get("Content-Encoding") != want.Header.Get("Content-Encoding") {
		t.Errorf("%s of %s: status %d and %d bytes, want %d and %d", name, rawURL, got.Status, len(got.Body), want.Status, len(want.Body))
	}
}

// TestHTMLEndless checks that a thousand concurrent pages without an end hold a bounded copy each.
func TestHTMLEndless(t *testing.T) {
	t.Parallel()
	const pages, passed = 1000, 256 << 10
	all := make(chan struct{})
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write(aPage[:passed]) // the client leaves before the end
		_ = http.NewResponseController(w).Flush()
		<-all
	}))
	t.Cleanup(site.Close)
	g := rig.New(t, rig.Config{Engine: rig.Unpaced + "\nsignals {\nhtml log\n}\nlimits {\nrequests_per_agent 2000\nconnections 4000\n}"})
	before := g.Usage().PeakRSS
	client := g.Client("Seeker/1.0")
	client.Transport.(*rig.AgentTransport).Base.MaxIdleConnsPerHost = pages
	var group sync.WaitGroup
	began := make(chan error, pages)
	for range pages {
		group.Go(func() {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, site.URL+"/page", http.NoBody)
			if err != nil {
				began <- err
				return
			}
			resp, err := client.Do(req)
			if err == nil {
				defer func() { _ = resp.Body.Close() }()
				_, err = io.CopyN(io.Discard, resp.Body, passed)
			}
			began <- err
			<-all
		})
	}
	for range pages {
		if err := <-began; err != nil {
			t.Error(err)
		}
	}
	grown := g.Usage().PeakRSS - before
	close(all)
	group.Wait()
	// A page has a copy of 64 KiB and some 100 KiB of connections and buffers; the collector may
	// double that.
	if grown > pages*(400<<10) {
		t.Errorf("%d pages took %d MiB, want at most 400 KiB each", pages, grown>>20)
	}
	t.Logf("%d pages took %d MiB", pages, grown>>20)
}
