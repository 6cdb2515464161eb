package fetch

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestStatusTable compares docs/status-table.md with the code: every cell is the result of Fetch,
// Next and Access. With -update it writes the page.
func TestStatusTable(t *testing.T) {
	t.Parallel()
	testdocs.Generated(t, "status-table.md", statusTable(t))
}

func statusTable(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(`# What a robots.txt answer permits

You look up what each answer to a request for robots.txt permits, how long it holds, and when the gateway asks again.

<!-- This page is generated from the code: go test ./fetch -run TestStatusTable -update -->

Each cell is a result of the state machine of package ` + "`fetch`" + `. *Rules* means that the rules of the file decide. *Last good
copy* means that the rules that held before the origin became unreachable decide.

## One answer

The result of one fetch, and the requests that it permits: at a new origin, at an origin whose rules are inside their TTL (an early
refresh), and at one whose rules are past it. This is for ` + "`unreachable spec`" + `. The next table has the other modes, and how
"nothing" changes with time.

| answer to GET /robots.txt | outcome | cause | new origin | rules inside their TTL | rules past their TTL |
|---|---|---|---|---|---|
`)
	writeAnswers(t, &b)
	writeFTP(t, &b)
	b.WriteString(`
With ` + "`forbidden disallow`" + `, 401 and 403 permit ` + forbidden(t) + `.

The gateway follows up to 5 redirects, to other hosts and ports, and between http and https. The last answer decides, for the
origin that was asked first.

206 and 304 are invalid answers, because the gateway asked neither for a part nor for a comparison; a 304 even says that there is a
file. 305 would lead to a proxy. 407 is the answer of a proxy (RFC 9110 section 15.5.8). A CDN can mark an answer as the answer of a
proxy. Behind an ` + "`upstream`" + `, the gateway cannot tell such an answer from one of the upstream, so neither says anything about
the site. Without an upstream, it is the answer of the site.

A 500 or 501 can be a 404 with the wrong status. The gateway takes it as a 404 if all of this is true:

* The title, the first heading or a short text says that the page was not found.
* Nothing on the page shows a fault of the server: no exception, trace, path, table, template or host.
* The site answers a request for a made-up path in the same way.

A 5xx never replaces rules: if a text is known, of any age, it is a failure.

The gateway ignores a Content-Encoding that names no coding (` + "`none`, `utf-8`" + `) if the body is text. It decodes gzip and zstd
even if the answer does not declare them.

## While unreachable

Permissions in each ` + "`unreachable`" + ` mode, by the time since the first failure. Any good answer ends the run of
failures. If the last good answer was that there is no file, there is no copy.

| unreachable for | last good copy | spec | stale | google | strict |
|---|---|---|---|---|---|
`)
	writeModes(&b)
	b.WriteString(`
The 30 days are ` + "`unreachable_for`" + `.

## How long a good answer holds

| header fields of the answer | TTL |
|---|---|
`)
	writeLifetimes(t, &b)
	b.WriteString(`
The gateway refreshes an answer that is in use in the background, after 80 % of its TTL. If the refresh fails, the answer holds to the
end of its TTL. Then the origin is unreachable since the first refresh that failed.

## When a failure is tried again

The pause is random between these two values, for each origin and run of failures:

| failure of the run | next attempt after |
|---|---|
`)
	writePauses(&b)
	b.WriteString(`
A reset or closed connection, a truncated body, and bytes that are not HTTP can be the fault of one connection. If they are the first
failure, the gateway tries once more at once, over a new connection and within the same ` + "`timeout`" + `. The second result
counts. ` + "`attempts`" + ` of the record counts both tries, and the pauses count them as one.

Retry-After makes a pause longer, up to a day. After a first failure:

| answer | next attempt after |
|---|---|
`)
	writeRetryAfter(t, &b)
	fmt.Fprintf(&b, `
A fault of the gateway's own machine (cause `+"`local`"+`) or of its upstream proxy (`+"`upstream`"+`) says nothing about the site. It
is not recorded, and counts in no run of failures. The gateway refuses requests that need the file as for an unreachable origin. The
first request after %s at most tries again.

The address guard of the gateway says nothing about a site either. If it refuses the address of the site, nothing is recorded. Requests
are refused with that reason (`+"`forbidden_address`, `forbidden_port`, `own_listener`"+`), and the next one tries again. If a site
redirects to such an address, that counts as a failure of the site.
`, short(Policy{}.Provisional(Record{}, Outcome{}, t0).NextAttempt.Sub(t0)))
	return b.String()
}

var accessWords = map[Access]string{
	AccessDeny: "nothing", AccessRules: "rules", AccessLastGood: "last good copy", AccessAllow: "everything",
}

// writeAnswers fetches every status and every failure and writes one row for each
// sequence of statuses with equal results.
func writeAnswers(tb testing.TB, b *strings.Builder) {
	tb.Helper()
	first, cells, redirects := 100, "", false
	flush := func(next int) {
		label := fmt.Sprintf("status %d", first)
		if next-1 > first {
			label = fmt.Sprintf("status %d to %d", first, next-1)
		}
		if redirects {
			label += " without a usable Location"
		}
		fmt.Fprintf(b, "| %s %s\n", label, cells)
	}
	for status := 100; status <= 600; status++ {
		out, _ := fetchScript(tb, Config{Soft404: true}, map[string]string{"*": answer(status, "")})
		row, follows := answerCells(out), out.Detail == "redirect without Location"
		if status > 100 && (row != cells || follows != redirects) {
			flush(status)
			first = status
		}
		cells, redirects = row, follows
	}
	fmt.Fprintf(b, "| any other status %s\n", cells)
	for _, c := range answerCases() {
		var rt http.RoundTripper = &script{tb: tb, answers: c.answers, errs: map[string]error{
			"http://10.0.0.1/": guardError(CauseForbiddenAddress), "http://10.0.0.1:25/": guardError(CauseForbiddenPort),
			"http://127.0.0.1/": guardError(CauseOwnListener),
		}}
		if c.err != nil {
			rt = roundTripper(func(*http.Request) (*http.Response, error) { return nil, c.err })
		}
		cfg := Config{Transport: rt, Soft404: true, Proxied: func(string) bool { return c.proxied }}
		out := New(cfg).Fetch(tb.Context(), mustKey(tb, "http://a.example"), nil)
		fmt.Fprintf(b, "| %s %s\n", c.label, answerCells(out))
	}
}

// writeFTP writes the rows for FTP origins.
func writeFTP(t *testing.T, b *strings.Builder) {
	t.Helper()
	for _, c := range []struct {
		label string
		site  *testorigin.FTPSite
	}{
		{"FTP: file", ftpSite(rules)},
		{"FTP: 550 to RETR", ftpSite("", "RETR", "550 no such file")},
		{"FTP: any other refusal, of the login too", ftpSite(rules, "PASS", "530 no")},
		{"FTP: transfer aborted", ftpSite(rules, "226", "426 aborted")},
	} {
		fmt.Fprintf(b, "| %s %s\n", c.label, answerCells(fetchFTPFrom(t, c.site)))
	}
}

func answerCells(out Outcome) string {
	p := Policy{}
	access := func(at time.Duration, steps ...any) string {
		return accessWords[p.Access(after(p, steps...), t0.Add(at))]
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s |", out.Kind, out.Cause, access(0, 0*hour, out),
		access(20*hour, 0*hour, good, 20*hour, out), access(25*hour, 0*hour, good, 25*hour, out))
}

type answerCase struct {
	label   string
	answers map[string]string
	err     error
	proxied bool
}

func answerCases() []answerCase {
	const first = "http://a.example/robots.txt"
	only := func(raw string) map[string]string { return map[string]string{"*": raw} }
	then := func(location, raw string) map[string]string { return map[string]string{first: to(location), "*": raw} }
	missing := answer(500, "<h1>Page not found</h1>")
	dial := func(err error) error { return &net.OpError{Op: "dial", Err: err} }
	return []answerCase{
		{label: "redirect to a 200", answers: then("https://b.example/x", answer(200, rules))},
		{label: "redirect to a 404", answers: then("https://b.example/x", answer(404, ""))},
		{label: "redirect to a 500", answers: then("https://b.example/x", answer(500, ""))},
		{label: "5 redirects, then 200", answers: chain(5, answer(200, rules))},
		{label: "6 redirects", answers: chain(6, answer(200, rules))},
		{label: "redirect loop", answers: only(to("/x"))},
		{label: "redirect to `ftp:`, `file:`, `mailto:`, `javascript:`, `data:` and their like, known schemes of other things than HTTP", answers: only(to("file:///etc/passwd"))},
		{label: "redirect to a Location that is no URL", answers: only(to("http://[b.example/"))},
		{label: "redirect to a Location with an unknown scheme or without one: `htps://...`, `www.example.com:443/robots.txt`", answers: only(to("htps://b.example/robots.txt"))},
		{label: "redirect to a URL with credentials or a host that is not canonical", answers: only(to("http://u:p@0x7f.1/"))},
		{label: "redirect to a forbidden address", answers: only(to("http://10.0.0.1/"))},
		{label: "redirect to a forbidden port", answers: only(to("http://10.0.0.1:25/"))},
		{label: "redirect to a listener of the gateway itself", answers: only(to("http://127.0.0.1/"))},
		{label: "the origin's own address is forbidden", err: guardError(CauseForbiddenAddress)},
		{label: "the origin's own port is forbidden", err: guardError(CauseForbiddenPort)},
		{label: "the origin is a listener of the gateway itself", err: guardError(CauseOwnListener)},
		{label: "200, empty", answers: only(answer(200, ""))},
		{label: "200, an HTML page", answers: only(answer(200, "<html>", "Content-Type: text/html"))},
		{label: "200, larger than 500 KiB (the first 500 KiB count)", answers: only(answer(200, strings.Repeat("#", MinSize+1)))},
		{label: "200, body shorter than its Content-Length", answers: only(answer(200, rules)[:60])},
		{label: "200, broken chunks", answers: only("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n")},
		{label: "200, content coding not known here, or its data broken or no text", answers: only(answer(200, rules, "Content-Encoding: gzip"))},
		{label: "500 and 501 whose page says that there is no such page, as for a made-up path", answers: only(missing)},
		{label: "any other 5xx whose page says so", answers: only(strings.Replace(missing, "500", "503", 1))},
		{label: "name does not resolve", err: dial(&net.DNSError{Err: "no such host"})},
		{label: "connection refused, host unreachable", err: dial(syscall.ECONNREFUSED)},
		{label: "TLS handshake or certificate", err: errors.New("tls: handshake failure")},
		{label: "time limit of the whole fetch, in whatever phase; `dial_timeout`", err: os.ErrDeadlineExceeded},
		{label: "connection reset or closed", err: syscall.ECONNRESET},
		{label: "no HTTP", err: errors.New(`malformed HTTP response "SSH-2.0"`)},
		{label: "fault of the gateway's machine: no descriptors, memory, ports or network", err: dial(syscall.EMFILE)},
		{label: "through `upstream`: an answer of the proxy's own (407, 511, Proxy-Status with an error, X-Squid-Error and the like)", answers: only(answer(403, "", "X-Squid-Error: ERR_ACCESS_DENIED 0")), proxied: true},
		{label: "through `upstream`: the proxy cannot be used, or refuses the tunnel with a status below 500", err: upstreamError{"upstream", "answered 407"}},
		{label: "through `upstream`: the proxy answers CONNECT with 5xx", err: upstreamError{"connect", "answered 502"}},
	}
}

// forbidden returns what 401 and 403 permit with the switch.
func forbidden(tb testing.TB) string {
	tb.Helper()
	p := Policy{ForbiddenDisallow: true}
	word := func(status int) string {
		return accessWords[p.Access(after(p, 0*hour, Outcome{Kind: KindAbsent, Status: status}), t0)]
	}
	if word(401) != word(403) {
		tb.Errorf("401 permits %s, 403 %s", word(401), word(403))
	}
	return word(401)
}

func writeModes(b *strings.Builder) {
	ages := []struct {
		label string
		age   time.Duration
	}{
		{"less than 12 hours", 0},
		{"less than 12 hours", 12*hour - 1},
		{"12 hours to 30 days", 12 * hour},
		{"12 hours to 30 days", 30*day - 1},
		{"30 days and more", 30 * day},
		{"30 days and more", 10 * 365 * day},
	}
	for _, before := range []Outcome{good, gone} {
		last := ""
		for _, a := range ages {
			word := map[Kind]string{KindRules: "yes", KindAbsent: "no"}[before.Kind]
			row := fmt.Sprintf("| %s | %s |", a.label, word)
			for _, mode := range modes {
				p := Policy{Mode: mode}
				r := after(p, -day, before, 0*hour, broken)
				row += " " + accessWords[p.Access(r, t0.Add(a.age))] + " |"
			}
			// Both ends of a span must be equal and then form one row.
			if row != last {
				b.WriteString(row + "\n")
			}
			last = row
		}
	}
}

func writeLifetimes(tb testing.TB, b *strings.Builder) {
	tb.Helper()
	for _, fields := range [][]string{
		{},
		{"Cache-Control: max-age=3600"},
		{"Cache-Control: max-age=3600", "Age: 1800"},
		{"Cache-Control: max-age=60"},
		{"Cache-Control: max-age=604800"},
		{"Cache-Control: max-age=7200, s-maxage=3600"},
		{"Cache-Control: no-cache"},
		{"Cache-Control: no-store, max-age=3600"},
		{"Cache-Control: max-age=soon"},
		{"Expires: Thu, 01 Jan 1970 00:00:00 GMT"},
	} {
		out, _ := fetchScript(tb, Config{}, map[string]string{"*": answer(200, rules, fields...)})
		r := after(Policy{}, 0*hour, out)
		label := "none of these"
		if len(fields) > 0 {
			label = "`" + strings.Join(fields, "`, `") + "`"
		}
		fmt.Fprintf(b, "| %s | %s |\n", label, short(r.FreshUntil.Sub(t0)))
	}
}

func writePauses(b *strings.Builder) {
	p := Policy{}.Complete()
	for n := 1; n <= 8; n++ {
		low, high := p.pauseRange(n)
		label := fmt.Sprint(n)
		if n == 8 {
			label = "8 and later"
		}
		fmt.Fprintf(b, "| %s | %s to %s |\n", label, short(low), short(high))
	}
}

func writeRetryAfter(tb testing.TB, b *strings.Builder) {
	tb.Helper()
	date := time.Now().Add(2 * hour).UTC().Format(http.TimeFormat)
	for _, value := range []string{"1800", date, "604800"} {
		out, _ := fetchScript(tb, Config{}, map[string]string{"*": answer(503, "", "Retry-After: "+value)})
		pause := after(Policy{}, 0*hour, out).NextAttempt.Sub(t0)
		if value == date {
			value = "(a date in 2 hours)"
		}
		fmt.Fprintf(b, "| 503 with Retry-After: %s | %s |\n", value, short(pause.Round(time.Minute)))
	}
}

// short returns a duration without its zero parts.
func short(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
