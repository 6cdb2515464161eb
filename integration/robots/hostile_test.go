//go:build slow

package robots

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestHostileOrigins checks the gateway with some 120 origins whose answers for robots.txt are
// wrong, false, slow or hostile. None of them may lift rules that it does not lift itself, delay
// other requests, or stop the gateway.
func TestHostileOrigins(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	var cases []robotsCase
	for _, group := range [][]robotsCase{
		hostileFraming(), hostileStatusLines(), hostileHeaders(), hostileRedirects(t, server), hostileCodings(), hostileTexts(),
		hostileTimes(), hostileTLS(),
	} {
		cases = append(cases, group...)
	}
	names := map[string]bool{}
	for _, c := range cases {
		if names[c.name] {
			t.Errorf("the name %q is not unique", c.name)
		}
		names[c.name] = true
	}
	const least = 60
	if len(cases) < least {
		t.Errorf("%d behaviours, want at least %d", len(cases), least)
	}
	t.Logf("%d behaviours", len(cases))
	checkRobotsCases(t, server, cases, "fetch {\ntimeout 8s\n}")
}

// says returns an origin that answers with these bytes and closes the connection.
func says(name, raw string, meaning testorigin.Meaning, cause fetch.Cause) robotsCase {
	b := testorigin.Raw(name, []byte(raw))
	b.Meaning = meaning
	return robotsCase{name: name, behaviour: b, meaning: meaning, rules: []byte(rig.Rules), cause: cause}
}

// file returns a 200 with header fields and a body.
func file(fields, body string) string {
	return "HTTP/1.1 200 OK\r\n" + fields + "\r\n" + body
}

func sized(body string) string { return "Content-Length: " + strconv.Itoa(len(body)) + "\r\n" }

func chunk(body string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(body), body) }

const chunked = "Transfer-Encoding: chunked\r\n"

func hostileFraming() []robotsCase {
	const unreachable, known = testorigin.MeansUnreachable, testorigin.MeansRules
	half := len(rig.Rules) / 2
	return []robotsCase{
		says("length below zero", file("Content-Length: -1\r\n", rig.Rules), unreachable, fetch.CauseProtocol),
		says("length that is no number", file("Content-Length: 1x\r\n", rig.Rules), unreachable, fetch.CauseProtocol),
		says("length beyond all numbers", file("Content-Length: 99999999999999999999\r\n", rig.Rules), unreachable, fetch.CauseProtocol),
		says("two lengths", file(sized(rig.Rules)+"Content-Length: 5\r\n", rig.Rules), unreachable, fetch.CauseProtocol),
		says("the same length twice", file(sized(rig.Rules)+sized(rig.Rules), rig.Rules), known, ""),
		says("length and chunks", file(chunked+"Content-Length: 5\r\n", chunk(rig.Rules)+"0\r\n\r\n"), known, ""),
		says("length too long", file("Content-Length: 100000\r\n", rig.Rules), unreachable, fetch.CauseTruncated),
		says("length too short", file("Content-Length: "+strconv.Itoa(len(rig.Rules))+"\r\n", rig.Rules+"Allow: /\n"), known, ""),
		says("unknown transfer coding", file("Transfer-Encoding: gzip, chunked\r\n", chunk(rig.Rules)+"0\r\n\r\n"), unreachable, fetch.CauseProtocol),
		says("chunked twice", file(chunked+chunked, chunk(rig.Rules)+"0\r\n\r\n"), unreachable, fetch.CauseProtocol),
		says("no last chunk", file(chunked, chunk(rig.Rules)), unreachable, fetch.CauseTruncated),
		says("chunk size that is no number", file(chunked, chunk(rig.Rules)+"zz\r\n"), unreachable, fetch.CauseTruncated),
		says("chunk size below zero", file(chunked, "-5\r\n"+rig.Rules+"\r\n0\r\n\r\n"), unreachable, fetch.CauseTruncated),
		says("chunk size beyond all numbers", file(chunked, "fffffffffffffffff\r\n"+rig.Rules+"\r\n0\r\n\r\n"), unreachable, fetch.CauseTruncated),
		says("chunk without its end", file(chunked, strconv.FormatInt(int64(half), 16)+"\r\n"+rig.Rules+"\r\n0\r\n\r\n"), unreachable, fetch.CauseTruncated),
		says("chunk extension of a mebibyte", file(chunked, "5;"+strings.Repeat("x", 1<<20)+"\r\nUser-\r\n0\r\n\r\n"), unreachable, fetch.CauseTruncated),
		says("100,000 trailers", file(chunked, chunk(rig.Rules)+"0\r\n"+strings.Repeat("X: y\r\n", 100_000)+"\r\n"), unreachable, fetch.CauseTruncated),
		says("broken trailer", file(chunked, chunk(rig.Rules)+"0\r\nno colon\r\n\r\n"), unreachable, fetch.CauseTruncated),
		says("body up to the end", file("Connection: close\r\n", rig.Rules), known, ""),
	}
}

func hostileStatusLines() []robotsCase {
	const unreachable, known = testorigin.MeansUnreachable, testorigin.MeansRules
	status := func(line string) string { return line + "\r\n" + sized(rig.Rules) + "\r\n" + rig.Rules }
	return []robotsCase{
		says("no status line", rig.Rules, unreachable, fetch.CauseProtocol),
		says("another protocol", "220 mail.example ESMTP\r\n", unreachable, fetch.CauseProtocol),
		says("parts of the status line swapped", status("HTTP/1.1 OK 200"), unreachable, fetch.CauseProtocol),
		says("status of two digits", status("HTTP/1.1 20 OK"), unreachable, fetch.CauseProtocol),
		says("status of four digits", status("HTTP/1.1 2000 OK"), unreachable, fetch.CauseProtocol),
		says("status below zero", status("HTTP/1.1 -20 OK"), unreachable, fetch.CauseProtocol),
		says("status 000", status("HTTP/1.1 000 OK"), unreachable, fetch.CauseProtocol),
		says("status 600", status("HTTP/1.1 600 OK"), unreachable, fetch.CauseProtocol),
		says("status 999", status("HTTP/1.1 999 OK"), unreachable, fetch.CauseProtocol),
		says("protocol in lower case", status("http/1.1 200 OK"), unreachable, fetch.CauseProtocol),
		says("a stream's status line", status("ICY 200 OK"), unreachable, fetch.CauseProtocol),
		says("no reason phrase", status("HTTP/1.1 200"), known, ""),
		says("reason phrase of two mebibytes", status("HTTP/1.1 200 "+strings.Repeat("x", 2<<20)), unreachable, ""),
		says("line feeds alone", strings.ReplaceAll(status("HTTP/1.1 200 OK"), "\r\n", "\n"), known, ""),
		says("carriage returns alone", strings.ReplaceAll(status("HTTP/1.1 200 OK"), "\r\n", "\r"), unreachable, fetch.CauseReset),
		says("interim answers alone", strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 3), unreachable, fetch.CauseReset),
		says("100,000 interim answers", strings.Repeat("HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n", 100_000)+status("HTTP/1.1 200 OK"), unreachable, ""),
		says("another protocol unasked", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"+rig.Rules, unreachable, fetch.CauseProtocol),
		says("a part of the file", "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-9/10\r\n"+sized(rig.Rules)+"\r\n"+rig.Rules, unreachable, fetch.CauseProtocol),
		says("not modified", "HTTP/1.1 304 Not Modified\r\n\r\n", unreachable, fetch.CauseProtocol),
	}
}

func hostileHeaders() []robotsCase {
	const unreachable, known = testorigin.MeansUnreachable, testorigin.MeansRules
	with := func(fields string) string { return file(sized(rig.Rules)+fields, rig.Rules) }
	endless := testorigin.EndlessHead()
	return []robotsCase{
		{name: "endless header", behaviour: endless, meaning: unreachable},
		says("field of two mebibytes", with("X: "+strings.Repeat("x", 2<<20)+"\r\n"), unreachable, ""),
		says("100,000 fields", with(strings.Repeat("Set-Cookie: a=b\r\n", 100_000)), unreachable, ""),
		says("field without a colon", with("nonsense\r\n"), unreachable, fetch.CauseProtocol),
		says("field without a name", with(": x\r\n"), unreachable, fetch.CauseProtocol),
		says("blank in a field name", with("X Y: z\r\n"), known, ""), // nothing depends on it
		says("blank in a field name that decides", with("X-Robots -Tag: none\r\n"), unreachable, fetch.CauseProtocol),
		says("control byte in a field", with("X: a\x00b\r\n"), unreachable, fetch.CauseProtocol),
		says("folded field", with("X: a\r\n b\r\n"), known, ""),
		says("max-age beyond all numbers", with("Cache-Control: max-age=99999999999999999999\r\n"), known, ""),
		says("age beyond all numbers", with("Age: 99999999999999999999\r\nCache-Control: max-age=60\r\n"), known, ""),
		says("length below the interim answer", "HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\n"+with(""), known, ""),
	}
}

func hostileRedirects(t *testing.T, server *testorigin.Server) []robotsCase {
	t.Helper()
	canary := server.Site(t, testorigin.SiteConfig{Scheme: "https"})
	canary.SetRobots(testorigin.BadCertificate(testorigin.CertificateSelfSigned, rig.Rules))
	to := func(location string, meaning testorigin.Meaning, cause fetch.Cause) robotsCase {
		b := testorigin.Redirect(http.StatusFound, location)
		return robotsCase{name: "redirect to " + location[:min(len(location), 60)], behaviour: b, meaning: meaning, rules: []byte(rig.Rules), cause: cause}
	}
	unreachable := func(location string, cause fetch.Cause) robotsCase {
		return to(location, testorigin.MeansUnreachable, cause)
	}
	absent := func(location string) robotsCase { return to(location, testorigin.MeansAbsent, fetch.CauseRedirects) }
	return []robotsCase{
		unreachable("http://169.254.169.254/latest/meta-data/", fetch.CauseForbiddenAddress),
		unreachable("http://[::ffff:169.254.169.254]/", fetch.CauseRedirects),
		unreachable("http://[64:ff9b::a9fe:a9fe]/", fetch.CauseForbiddenAddress),
		unreachable("http://[fe80::1]/", fetch.CauseForbiddenAddress),
		unreachable("http://10.1.2.3/robots.txt", fetch.CauseForbiddenAddress),
		unreachable("http://0.0.0.0/robots.txt", fetch.CauseForbiddenAddress),
		unreachable("http://127.0.0.1:25/robots.txt", fetch.CauseForbiddenPort),
		unreachable("http://2130706433/", fetch.CauseRedirects),
		unreachable("http://0x7f000001/", fetch.CauseRedirects),
		unreachable("http://0177.0.0.1/", fetch.CauseRedirects),
		unreachable("http://127.1/", fetch.CauseRedirects),
		unreachable("http://0/", fetch.CauseRedirects),
		unreachable("http://user:secret@127.0.0.1/robots.txt", fetch.CauseRedirects),
		unreachable("http://127.0.0.1\\@10.0.0.1/", fetch.CauseRedirects),
		unreachable("http://127.0.0.1:99999/", fetch.CauseRedirects),
		unreachable("http://127.0.0.1:0/", fetch.CauseRedirects),
		unreachable("http://[::1/", fetch.CauseRedirects),
		unreachable("http://exa\tmple.com/", fetch.CauseRedirects),
		unreachable("http:///robots.txt", fetch.CauseRedirects),
		unreachable("htps://127.0.0.1/", fetch.CauseRedirects),
		unreachable("http://crawlgate.onion/robots.txt", fetch.CauseDNS),
		unreachable(canary.URL("/robots.txt"), fetch.CauseTLS),
		absent("/robots.txt#again"),
		absent("file:///etc/passwd"),
		absent("javascript:alert(1)"),
		absent("data:text/plain,User-agent:*"),
		absent("ftp://127.0.0.1/robots.txt"),
		says("redirect with a line feed in it", "HTTP/1.1 302 Found\r\nLocation: file:///x\nX-Injected: y\r\nContent-Length: 0\r\n\r\n", testorigin.MeansAbsent, fetch.CauseRedirects),
		says("redirect to two places", "HTTP/1.1 302 Found\r\nLocation: file:///x\r\nLocation: /y\r\nContent-Length: 0\r\n\r\n", testorigin.MeansAbsent, fetch.CauseRedirects),
		says("redirect to a proxy", "HTTP/1.1 305 Use Proxy\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n", testorigin.MeansAbsent, fetch.CauseRedirects),
		says("redirect of a mebibyte", "HTTP/1.1 302 Found\r\nLocation: /"+strings.Repeat("x", 1<<20)+"\r\nContent-Length: 0\r\n\r\n", testorigin.MeansUnreachable, ""),
	}
}

// packed returns rules in gzip, padded with zeros up to size bytes.
func packed(size int) string {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is valid
	_, _ = w.Write([]byte(rig.Rules + "#"))               // a buffer does not fail
	zeros := make([]byte, 1<<20)
	for range size >> 20 {
		_, _ = w.Write(zeros)
	}
	_ = w.Close()
	return b.String()
}

func hostileCodings() []robotsCase {
	const unreachable, known = testorigin.MeansUnreachable, testorigin.MeansRules
	coded := func(coding, body string) string { return file("Content-Encoding: "+coding+"\r\n"+sized(body), body) }
	var window bytes.Buffer
	if w, err := zstd.NewWriter(&window, zstd.WithWindowSize(64<<20)); err == nil {
		_, _ = w.Write(bytes.Repeat([]byte(rig.Rules), 1<<20/len(rig.Rules)))
		_ = w.Flush() // so that the frame has no size and needs its window
		_ = w.Close()
	}
	return []robotsCase{
		says("unknown coding", coded("x-unheard-of", rig.Rules), known, ""),
		says("coding that is not decoded", coded("compress", rig.Rules), unreachable, fetch.CauseEncoding),
		says("invalid gzip", coded("gzip", rig.Rules), unreachable, fetch.CauseEncoding),
		says("invalid br", coded("br", rig.Rules+rig.Rules), unreachable, fetch.CauseEncoding),
		says("gzip cut short", coded("gzip", packed(0)[:20]), unreachable, fetch.CauseEncoding),
		says("gzip with more behind it", coded("gzip", packed(0)+"more"), known, ""),
		says("gzip bomb of 256 MiB", coded("gzip", packed(256<<20)), unreachable, fetch.CauseEncoding),
		says("gzip over invalid gzip", coded("gzip, gzip", packed(0)), unreachable, fetch.CauseEncoding),
		says("ten codings", coded(strings.Repeat("gzip, ", 9)+"gzip", packed(0)), unreachable, fetch.CauseEncoding),
		says("zstd window of 64 MiB", coded("zstd", window.String()), unreachable, fetch.CauseEncoding),
	}
}

func hostileTexts() []robotsCase {
	ok := func(name, text string) robotsCase {
		c := says(name, file(sized(text), text), testorigin.MeansRules, "")
		c.rules = []byte(text[:min(len(text), 500<<10)])
		return c
	}
	return []robotsCase{
		ok("empty file", ""),
		ok("HTML page", "<!DOCTYPE html><html><body>not found</body></html>"),
		ok("UTF-16", "\xff\xfeU\x00s\x00e\x00r\x00"),
		ok("control bytes", "\x00\x1b[2J\x07"+rig.Rules),
		ok("byte order mark", "\xef\xbb\xbf"+rig.Rules),
		ok("carriage returns alone as line ends", strings.ReplaceAll(rig.Rules, "\n", "\r")),
		ok("one line of 600 KiB", rig.Rules+"Disallow: /"+strings.Repeat("x", 600<<10)),
		ok("100,000 rules", rig.Rules+strings.Repeat("Disallow: /x\n", 40_000)),
		ok("rules that make others count for minutes", rig.Rules+strings.Repeat("Disallow: /*o*p*e*n*o*p*e*n*b$\n", 10_000)),
		ok("10,000 names", strings.Repeat("User-agent: x\n", 10_000)+rig.Rules),
		ok("Crawl-delay that is no number", rig.Rules+"Crawl-delay: NaN\nCrawl-delay: -1\nCrawl-delay: 1e308\n"),
		ok("invalid sitemaps", rig.Rules+"Sitemap: javascript:alert(1)\nSitemap: http://[::1\n"),
		ok("rules behind 500 KiB", "#"+strings.Repeat("x", 512<<10)+"\n"+rig.Rules),
	}
}

func hostileTimes() []robotsCase {
	const unreachable = testorigin.MeansUnreachable
	of := func(name string, b testorigin.Behaviour, cause fetch.Cause) robotsCase {
		return robotsCase{name: name, behaviour: b, meaning: unreachable, cause: cause}
	}
	half := len(rig.Rules) / 2
	return []robotsCase{
		of("refused connections", testorigin.Refuse(), fetch.CauseConnect),
		of("close before the header", testorigin.CloseAtOnce(), fetch.CauseReset),
		of("reset before the header", testorigin.ResetAtOnce(), fetch.CauseReset),
		of("reset in the header", testorigin.ResetInHead(), ""), // the kernel may drop the bytes before the reset
		of("reset in the body", testorigin.ResetInBody(rig.Rules, half), fetch.CauseTruncated),
		of("silence", testorigin.HangBeforeHead(), fetch.CauseTimeout),
		of("silence in the header", testorigin.HangInHead(), fetch.CauseTimeout),
		of("silence in the body", testorigin.HangInBody(rig.Rules, half), fetch.CauseTimeout),
		of("a byte a minute", testorigin.Drip(rig.Rules, time.Minute), fetch.CauseTimeout),
		of("a byte a second", testorigin.Drip(rig.Rules, time.Second), fetch.CauseTimeout),
	}
}

func hostileTLS() []robotsCase {
	var cases []robotsCase
	for name, b := range map[string]testorigin.Behaviour{
		"certificate that has expired":            testorigin.BadCertificate(testorigin.CertificateExpired, rig.Rules),
		"certificate that is not valid yet":       testorigin.BadCertificate(testorigin.CertificateNotYetValid, rig.Rules),
		"certificate that nobody vouches for":     testorigin.BadCertificate(testorigin.CertificateSelfSigned, rig.Rules),
		"certificate of another host":             testorigin.BadCertificate(testorigin.CertificateWrongHost, rig.Rules),
		"alert in the handshake":                  testorigin.HandshakeAlert(),
		"plain text in the handshake":             testorigin.HandshakePlain(),
		"silence in the handshake":                testorigin.HandshakeHang(),
		"connection that ends with the handshake": testorigin.HandshakeReset(),
	} {
		cases = append(cases, robotsCase{name: name, scheme: "https", behaviour: b, meaning: testorigin.MeansUnreachable})
	}
	return cases
}

// TestHostileRetryAfter checks that no site can postpone its next fetch for longer than a day, and
// that none is fetched at once.
func TestHostileRetryAfter(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	g := rig.New(t, rig.Config{})
	for _, value := range []string{
		"0", "-1", "1", "soon", "", "1e9", "99999999999999999999", "86401", "Thu, 01 Jan 1970 00:00:00 GMT",
		"Fri, 31 Dec 9999 23:59:59 GMT", "Fri, 32 Dec 2026 00:00:00 GMT",
	} {
		site := server.Site(t, testorigin.SiteConfig{})
		site.SetRobots(testorigin.Respond(testorigin.Response{Status: 503, Header: http.Header{"Retry-After": {value}}}))
		a := g.MustFetch("Tester/1.0", site.URL(rig.OpenPage))
		after, err := strconv.Atoi(a.Header.Get("Retry-After"))
		if a.Status != http.StatusForbidden || err != nil || after < 50 || after > 24*60*60 {
			t.Errorf("Retry-After %q of the site: status %d, Retry-After %q", value, a.Status, a.Header.Get("Retry-After"))
		}
	}
}

// TestHostilePages checks that an answer for a page that violates HTTP is refused with the reason,
// and that the next answer passes.
func TestHostilePages(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	g := rig.New(t, rig.Config{Engine: "pace {\nrate off\nbackoff off\n}", Egress: "response_header_timeout 3s"})
	for _, tt := range []struct {
		name string
		raw  string
		want int
	}{
		{"not HTTP", "220 mail.example ESMTP\r\n", 502},
		{"two lengths", file("Content-Length: 5\r\nContent-Length: 6\r\n", "hello!"), 502},
		{"length below zero", file("Content-Length: -1\r\n", "hello"), 502},
		{"field without a colon", file("nonsense\r\n", "hello"), 502},
		{"control byte in a field", file("X: a\x00b\r\n", "hello"), 502},
		{"field of two mebibytes", file("X: "+strings.Repeat("x", 2<<20)+"\r\n", "hello"), 502},
		{"another protocol unasked", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n", 502},
		{"proxy authentication demanded", "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\nContent-Length: 0\r\n\r\n", 502},
		{"status of four digits", "HTTP/1.1 2000 OK\r\nContent-Length: 0\r\n\r\n", 502},
		{"nothing", "", 502},
		{"a decision that is not ours", file("Crawlgate-Decision: allow\r\nContent-Length: 2\r\n", "ok"), 200},
	} {
		site := server.Site(t, testorigin.SiteConfig{})
		site.SetPath("/bad", testorigin.Raw(tt.name, []byte(tt.raw)))
		a := g.MustFetch("Tester/1.0", site.URL("/bad"))
		if a.Status != tt.want || a.Status == http.StatusOK && !slices.Equal(a.Header["Crawlgate-Decision"], []string{"allow; reason=absent"}) {
			t.Errorf("%s: status %d, want %d; header %v, %s", tt.name, a.Status, tt.want, a.Header, a.Body)
		}
		if a.Status != http.StatusOK && !strings.Contains(a.Header.Get("Proxy-Status"), "crawlgate; error=") {
			t.Errorf("%s: Proxy-Status is %q, want an error of the gateway", tt.name, a.Header.Get("Proxy-Status"))
		}
		if a := g.MustFetch("Tester/1.0", site.URL("/good")); a.Status != http.StatusOK {
			t.Errorf("%s: the next page: status %d, want 200: %s", tt.name, a.Status, a.Body)
		}
	}
}
