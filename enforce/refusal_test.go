package enforce

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/internal/pagestyle"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// forms has the Accept field for each form.
var forms = map[string]string{"txt": "*/*", "json": "application/json", "html": "text/html,*/*;q=0.8"}

// sampleText is a robots.txt whose line 12 refuses.
const sampleText = `# robots.txt of example.com

User-agent: *
Disallow: /search?
Crawl-delay: 1

User-agent: OtherBot
Disallow: /

# news only
User-agent: Acme
Disallow: /private/
Allow: /private/press/ # <b>not</b> a tag
Disallow: /*?sort=

Sitemap: https://example.com/sitemap.xml
`

// sample returns a plausible refusal for the reason.
func sample(tb testing.TB, r Reason) (Decision, RequestInfo) {
	tb.Helper()
	d := Decision{
		Allowed: true, Agent: "news", Tokens: []string{"AcmeNews", "Acme"}, IdentifiedBy: "user_agent", UserAgent: "AcmeNews/1.0",
		Origin: mustOrigin(tb, "https://example.com"), PathVisible: true,
	}
	asked := RequestInfo{Method: http.MethodGet, URL: "https://example.com/private/report?id=7"}
	known := func() {
		d.State, d.Source, d.SHA256 = fetch.StateRules, robotscache.SourceHot, [32]byte{0xab, 31: 0xcd}
		d.FetchedAt, d.FreshUntil, d.Age = now.Add(-5*time.Minute), now.Add(23*time.Hour), 5*time.Minute
	}
	nobody := func() { d.Agent, d.Tokens, d.IdentifiedBy, d.UserAgent = "", nil, "", "Mozilla/5.0 (X11; Linux)" }
	var detail string
	var retry time.Duration
	switch r {
	case ReasonDisallowed:
		known()
		d.Group, d.Rule, d.Line = "Acme", "/private/", 12
		d.quoted = quotation{[]byte(sampleText), 12}
		d.Owner, d.Contact = "team news", "news@acme.example"
	case ReasonTunnelRestricted:
		known()
		d.Group, d.PathVisible, asked = "*", false, RequestInfo{Method: http.MethodConnect, URL: "example.com:443"}
	case ReasonConnectDenied:
		d.PathVisible, asked = false, RequestInfo{Method: http.MethodConnect, URL: "example.com:443"}
	case ReasonUnreachable:
		d.State, d.Cause, d.Source = fetch.StateUnreachable, fetch.CauseTimeout, robotscache.SourceFetch
		d.FetchedAt, d.Age, retry = now.Add(-time.Minute), time.Minute, 90*time.Second
		detail = "no response header within the limit"
	case ReasonRobotsForbidden:
		d.State, d.Cause, d.Source = fetch.StateAbsent, fetch.CauseStatus, robotscache.SourceStore
		d.FetchedAt, d.FreshUntil, retry = now.Add(-time.Minute), now.Add(time.Hour), time.Hour
		detail = "status 403"
	case ReasonPending:
		retry = 5 * time.Second
	case ReasonKillSwitch:
		detail = "stopped: host example.com, by eve, at 2026-11-21T11:00:00Z, because: complaint 12"
	case ReasonOperatorDeny:
		detail = "deny *.example.com"
	case ReasonAgentHost:
		detail = "it is not one of the agent's hosts"
	case ReasonAgentPort:
		d.Origin = mustOrigin(tb, "https://example.com:8443")
		asked.URL = "https://example.com:8443/private/report?id=7"
		detail = "port 8443 is not one of the agent's"
	case ReasonAgentMethod:
		asked.Method = http.MethodPost
		detail = "POST is not one of the agent's methods GET, HEAD"
	case ReasonAgentExpired:
		detail = "since 2026-11-01, ticket SEC-4711"
	case ReasonWindow:
		detail, retry = "its hours are 22:00-06:00 Europe/Berlin", 9*time.Hour
	case ReasonVisitTime:
		known()
		d.Group, d.Rule, d.Line, retry = "Acme", "0600-0845", 12, 18*time.Hour
		d.quoted = quotation{[]byte(sampleText), 12}
	case ReasonClientNotAllowed:
		d = Decision{UserAgent: d.UserAgent}
		detail = "203.0.113.9 is in no range of clients"
	case ReasonUnidentified, ReasonCredentialsMissing:
		nobody()
		detail = "it matches no registered agent"
	case ReasonCredentialsWrong:
		nobody()
		detail = "user name or password is wrong"
	case ReasonAgentMismatch:
		detail = `it does not match the registration of agent "news": source differs`
	case ReasonUserAgentConflict:
		d.UserAgent = "OtherBot/2.0"
		detail = `the User-Agent names agent "other", but the credential is that of agent "news"`
	case ReasonAmbiguousAgent:
		detail = `it matches the agents "news" and "other" equally well`
	case ReasonBadTarget:
		d = Decision{}
		asked.URL = "http://user:secret@exa mple.com/"
		detail = `origin: userinfo "...@exa mple.com" is not allowed`
	case ReasonMethod:
		d.Origin = mustOrigin(tb, "ftp://example.com")
		asked = RequestInfo{Method: http.MethodPut, URL: "ftp://example.com/pub/report.txt"}
	case ReasonBadRequest:
		d = Decision{}
		detail = "more than one field User-Agent"
	case ReasonRateLimited, ReasonConcurrency, ReasonQueueFull, ReasonOverloaded, ReasonBackoff, ReasonBudget:
		known()
		retry = 12300 * time.Millisecond
	case ReasonCredentialsBusy:
		d = Decision{Origin: d.Origin}
		detail = "too many other passwords were waiting to be checked"
		retry = 3 * time.Second
	case ReasonAgentLimit:
		detail = "16384 requests are under way"
		retry = 5 * time.Second
	case ReasonURLSize:
		d = Decision{}
		detail = "it has 20000 bytes, and the limit is 16384"
	case ReasonCrawlDelay:
		known()
		d.Group, d.CrawlDelay = "*", time.Hour
		detail = "Crawl-delay 1h is above the limit of 30s"
	case ReasonPreferenceDenied:
		known()
		d.Purposes, d.Conflict = []string{"train-ai"}, "train-ai=n;from=robots;line=4"
		d.Group, detail = "*", d.Conflict
	case ReasonForbiddenAddress:
		detail = "169.254.169.254 is a metadata address"
	case ReasonOwnListener:
		detail = "address 127.0.0.1:2019 belongs to the admin API, the operator's page or another listener of the gateway's process"
	case ReasonInternal:
		detail = "opening /var/lib/secret: no such file"
	default:
		if r.Failure() {
			known()
			detail = "what the network said"
		}
	}
	asked.Docs = "http://10.0.0.5:3128/docs/"
	return d.Refuse(r, detail, retry), asked
}

// TestMore checks that people get a link to the gateway's own pages, unless the operator has others
// or the client must not read them. The type stays the same.
func TestMore(t *testing.T) {
	t.Parallel()
	const docs = "http://[fd00::1]:3128/docs/"
	for _, tt := range []struct {
		help       Help
		docs       string
		reason     Reason
		kind, more string
	}{
		{HelpAt("v1"), docs, "tls_alert", HelpAt("v1").Base + "tls-alert.md", docs + "problems/tls-alert"},
		{Help{}, docs, "tls_alert", HelpAt("main").Base + "tls-alert.md", docs + "problems/tls-alert"},
		{HelpAt("v1"), "", "tls_alert", HelpAt("v1").Base + "tls-alert.md", HelpAt("v1").Base + "tls-alert.md"},
		{HelpAt("v1"), docs, ReasonClientNotAllowed, HelpAt("v1").Base + "client-not-allowed.md", HelpAt("v1").Base + "client-not-allowed.md"},
		{Help{Base: "https://wiki.example/?a&b="}, docs, "tls_alert", "https://wiki.example/?a&b=tls-alert", "https://wiki.example/?a&b=tls-alert"},
	} {
		p := NewProblem(Decision{}.Refuse(tt.reason, "", 0), RequestInfo{Help: tt.help, Docs: tt.docs})
		if p.Type != tt.kind || p.More != tt.more {
			t.Errorf("%+v: type %s, link %s", tt, p.Type, p.More)
		}
		for form, want := range map[string]string{
			string(p.Text()): "\nmore:        " + tt.more + "\n",
			string(p.HTML()): "<dt>more</dt><dd>" + html.EscapeString(tt.more) + "</dd>",
		} {
			if !strings.Contains(form, want) {
				t.Errorf("the form lacks %q: %s", want, form)
			}
		}
	}
}

func refusing(tb testing.TB) (list []Reason) {
	tb.Helper()
	for _, r := range Reasons() {
		if !r.Allows() {
			list = append(list, r)
		}
	}
	return list
}

// Further samples of a reason.
const (
	resolved = ReasonDisallowed + "_resolved"  // disallowed in the form that servers resolve it to
	upstream = ReasonUnreachable + "_upstream" // for an error of the operator's own proxy
)

// sampleAs returns the refusal of a sample in one of the forms.
func sampleAs(tb testing.TB, r Reason, form string) (Refusal, Problem) {
	tb.Helper()
	base, _, _ := strings.Cut(string(r), "_resolved")
	base, _, _ = strings.Cut(base, "_upstream")
	d, asked := sample(tb, Reason(base))
	switch r { //nolint:exhaustive // other reasons use the plain sample
	case upstream:
		d.Cause, d.RetryAfter, d.Detail = fetch.CauseUpstream, 5*time.Second, "upstream proxy answered 407 itself (its status)"
	case resolved:
		asked.URL = "https://example.com/public/..;/private/report?id=7"
		d.Form, d.Judged = PathResolved, "/private/report?id=7"
	}
	asked.Accept = forms[form]
	return Render(d, asked), NewProblem(d, asked)
}

// TestRefusalGolden checks the text of every reason, which docs/problems shows, and one answer in
// each other form. TestFormsSayTheSame checks the others.
func TestRefusalGolden(t *testing.T) {
	t.Parallel()
	golden := map[string]Reason{"disallowed.json": ReasonDisallowed, "disallowed.html": ReasonDisallowed}
	for _, r := range append(refusing(t), resolved, upstream) {
		golden[string(r)+".txt"] = r
	}
	for file, r := range golden {
		name := filepath.Join("testdata", "golden", file)
		refusal, _ := sampleAs(t, r, strings.TrimPrefix(filepath.Ext(file), "."))
		got := withoutSheet(dump(refusal))
		if *testdocs.Update {
			if err := os.WriteFile(name, got, 0o600); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
		} else if !bytes.Equal(got, want) {
			t.Errorf("%s (go test ./enforce -run Golden -update)\ngot:\n%s\nwant:\n%s", name, got, want)
		}
	}
	files, err := os.ReadDir(filepath.Join("testdata", "golden"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if _, ok := golden[f.Name()]; !ok {
			t.Errorf("%s is not the file of a reason", f.Name())
		}
	}
}

// withoutSheet removes from a page the style sheet, which package pagestyle tests.
func withoutSheet(page []byte) []byte {
	page = bytes.Replace(page, []byte(pagestyle.CSS), []byte("/* internal/pagestyle */"), 1)
	return bytes.Replace(page, []byte(pagestyle.Source(pagestyle.CSS)), []byte("'sha256-...'"), 1)
}

// TestFormsSayTheSame checks that JSON and HTML contain the same facts as the text, for every
// reason.
func TestFormsSayTheSame(t *testing.T) {
	t.Parallel()
	same := func(r Reason, what string, got, want any) {
		t.Helper()
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s\ngot  %v\nwant %v", r, what, got, want)
		}
	}
	for _, r := range append(refusing(t), resolved, upstream) {
		text, p := sampleAs(t, r, "txt")
		first, rest, _ := strings.Cut(string(text.Body), "\n\n")
		var facts []fact
		for line := range strings.Lines(rest) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
			facts = append(facts, fact{name, strings.TrimLeft(value, " ")})
		}

		page, _ := sampleAs(t, r, "html")
		heading := html.EscapeString(fmt.Sprintf("%d %s", p.Status, p.Title))
		for _, part := range []string{
			"<title>" + heading + "</title>", "<h1>" + heading + "</h1>", `<p class="lead">` + html.EscapeString(first) + "</p>",
		} {
			if !bytes.Contains(page.Body, []byte(part)) {
				t.Errorf("%s: the page lacks %s:\n%s", r, part, page.Body)
			}
		}
		var rows []fact
		for _, m := range regexp.MustCompile(`(?m)^<dt>(.*)</dt><dd>(.*)</dd>$`).FindAllStringSubmatch(string(page.Body), -1) {
			rows = append(rows, fact{html.UnescapeString(m[1]), html.UnescapeString(m[2])})
		}
		if bytes.Contains(page.Body, []byte("<a ")) {
			t.Errorf("%s: the page has a link, which a crawler would follow", r)
		}
		same(r, "facts of the page", rows, facts)

		details, _ := sampleAs(t, r, "json")
		var read Problem
		if err := json.Unmarshal(details.Body, &read); err != nil {
			t.Fatal(err)
		}
		same(r, "facts of the JSON", read.facts(), facts)
		same(r, "detail of the JSON", read.Detail, first)
		p.phrase, p.proxyStatus, p.decision, p.quoted = "", "", "", quotation{}
		same(r, "JSON", read, p)

		csp := page.Header.Get("Content-Security-Policy")
		same(r, "policy of the page", csp, pagestyle.Policy)
		page.Header.Del("Content-Security-Policy")
		for form, other := range map[string]Refusal{"text/html; charset=utf-8": page, "application/problem+json": details} {
			same(r, "type", other.Header.Get("Content-Type"), form)
			other.Header.Set("Content-Type", text.Header.Get("Content-Type"))
			same(r, "header of "+form, other.Header, text.Header)
			same(r, "status line of "+form, []any{other.Status, other.Reason}, []any{text.Status, text.Reason})
		}
	}
}

// dump returns an answer in the form of HTTP/1.1, with its fields in order.
func dump(r Refusal) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%d %s\n", r.Status, r.Reason)
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(r.Header[name], "\n"))
	}
	b.WriteByte('\n')
	b.Write(r.Body)
	return b.Bytes()
}

// hostile returns a decision whose foreign texts all attack the program that shows them.
func hostile(tb testing.TB, r Reason, text string) (Decision, RequestInfo) {
	tb.Helper()
	d, _ := sample(tb, r)
	d.Rule, d.Group, d.Agent, d.UserAgent, d.Detail, d.Exception = text, text, text, text, text, text
	d.Owner, d.Contact = text, text
	d.Line = 1
	d.quoted = quotation{[]byte(strings.Repeat(text+"\n", 20)), 7}
	return d, RequestInfo{Method: text, URL: text}
}

// checkRefusal checks what holds for every refusal, whatever its contents.
func checkRefusal(t *testing.T, r Refusal) {
	t.Helper()
	if r.Reason == "" || len(r.Reason) > maxPhrase || escape.ASCII(r.Reason, maxPhrase) != r.Reason {
		t.Errorf("reason phrase %q", r.Reason)
	}
	for name, values := range r.Header {
		for _, v := range values {
			if name != http.CanonicalHeaderKey(name) || len(v) > 2*maxShown || escape.ASCII(v, len(v)) != v {
				t.Errorf("%s: %q", name, v)
			}
		}
	}
	if !regexp.MustCompile(`^crawlgate(; error=[a-z_]+)?; details="([ !#-\[\]-~]|\\["\\])*"$`).MatchString(r.Header.Get("Proxy-Status")) {
		t.Errorf("Proxy-Status is not a structured field: %q", r.Header.Get("Proxy-Status"))
	}
	if !regexp.MustCompile(`^(deny|error); reason=[a-z0-9_]+(; line=[0-9]+)?(; until=@[0-9]+)?$`).MatchString(r.Header.Get(HeaderDecision)) {
		t.Errorf("%s: %q", HeaderDecision, r.Header.Get(HeaderDecision))
	}
	if r.Header.Get("Cache-Control") != "no-store" || r.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("header %v", r.Header)
	}
	if (r.Status == 407) != (r.Header.Get("Proxy-Authenticate") != "") {
		t.Errorf("status %d with Proxy-Authenticate %q", r.Status, r.Header.Get("Proxy-Authenticate"))
	}
	if len(r.Body) > 32<<10 {
		t.Errorf("%d bytes of body", len(r.Body))
	}
	for i, c := range string(r.Body) {
		if c < ' ' && c != '\n' || c == 0x7f || c == '\u202e' || c == '\ufffd' {
			t.Fatalf("%U at %d of the body:\n%s", c, i, r.Body)
		}
	}
	switch first, _, _ := strings.Cut(string(r.Body), "\n"); Form(r.Header.Get("Content-Type")) {
	case FormText:
		if first == "" || len(first) > maxSummary {
			t.Errorf("the first line is %q, want 1 to %d bytes", first, maxSummary)
		}
	case FormJSON:
		if !json.Valid(r.Body) {
			t.Errorf("the body is not JSON: %s", r.Body)
		}
	case FormHTML:
		if !strings.Contains(string(r.Body), `<link rel="icon" href="data:image/svg+xml,`) {
			t.Errorf("the page has no icon:\n%s", r.Body)
		}
		// Every tag must be one of the page's own.
		for _, tag := range regexp.MustCompile(`</?[^ >]*`).FindAllString(string(r.Body), -1) {
			if !slices.Contains([]string{
				"!DOCTYPE", "html", "head", "meta", "title", "link", "style", "body", "h1", "p", "dl", "dt", "dd",
				"header", "span", "svg", "path", "main", "section", "h2", "ol", "li", "mark", "a",
			}, strings.Trim(tag, "</")) {
				t.Errorf("the page has the foreign tag %q", tag)
			}
		}
	}
}

func TestRefusalOfEveryReason(t *testing.T) {
	t.Parallel()
	attacks := []string{
		"", "<script>alert(1)</script>", "a\r\nSet-Cookie: x=y\r\n\r\n", "\x00\x1b[31m\x7f\xff", "\u202e\u2028\ufeff",
		`"quoted\" \\`, strings.Repeat("é", 5000), strings.Repeat("\x00", 5000), strings.Repeat(`"`, 5000),
	}
	for _, r := range refusing(t) {
		for _, accept := range forms {
			d, asked := sample(t, r)
			asked.Accept = accept
			checkRefusal(t, Render(d, asked))
			for _, text := range attacks {
				d, asked := hostile(t, r, text)
				asked.Accept = accept
				checkRefusal(t, Render(d, asked))
				d.Form, d.Judged = PathResolved, text
				checkRefusal(t, Render(d, asked))
			}
		}
	}
}

func FuzzRefusal(f *testing.F) {
	f.Add("disallowed", "<b>\r\n", "*/*", int64(5))
	f.Add("unidentified", "\x00\xff", "application/json", int64(-1))
	f.Add("", "\u202e\"\\", "text/html", int64(1<<62))
	f.Fuzz(func(t *testing.T, reason, text, accept string, nanos int64) {
		d, asked := hostile(t, ReasonDisallowed, text)
		d.Reason, d.RetryAfter, d.Age, d.Line = Reason(reason), time.Duration(nanos), time.Duration(nanos), int(nanos)
		asked.Accept = accept
		checkRefusal(t, Render(d, asked))
		d.Form, d.Judged = PathResolved, text
		checkRefusal(t, Render(d, asked))
	})
}

// Render answers with an error for a decision that is not a refusal.
func TestRenderOfWhatIsAllowed(t *testing.T) {
	t.Parallel()
	for _, d := range []Decision{
		{},
		{Allowed: true, Reason: ReasonNoRule},
		{Reason: ReasonAbsent},
		{Reason: "made_up"},
		{Allowed: true, Reason: ReasonDisallowed, WouldDeny: true},
	} {
		if r := Render(d, RequestInfo{}); r.Status != 500 || !strings.Contains(r.Header.Get("Proxy-Status"), "proxy_internal_error") {
			t.Errorf("Render(%+v): status %d, header %v, want 500", d, r.Status, r.Header)
		}
	}
}

// Details of the gateway's inside are only for the log.
func TestInternalDetailStaysInside(t *testing.T) {
	t.Parallel()
	d, asked := sample(t, ReasonInternal)
	if !strings.Contains(d.Record().Detail, "secret") {
		t.Error("the log lacks the detail")
	}
	for _, accept := range forms {
		asked.Accept = accept
		if got := dump(Render(d, asked)); bytes.Contains(got, []byte("secret")) {
			t.Errorf("the refusal has the internal detail: %s", got)
		}
	}
}

// The refusal contains the log's object, byte for byte.
func TestProblemCarriesTheRecord(t *testing.T) {
	t.Parallel()
	d, asked := sample(t, ReasonDisallowed)
	var p struct {
		Robots json.RawMessage `json:"robots"`
	}
	if err := json.Unmarshal(NewProblem(d, asked).JSON(), &p); err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(d.Record())
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := json.Compact(&got, p.Robots); err != nil || got.String() != string(want) {
		t.Errorf("got  %s\nwant %s", got.String(), want)
	}
}

func TestRetryAfterIsRoundedUp(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "", time.Nanosecond: "1", time.Second: "1", time.Second + 1: "2", time.Hour: "3600",
	} {
		dec, asked := sample(t, ReasonRateLimited)
		dec.RetryAfter = d
		if got := Render(dec, asked).Header.Get("Retry-After"); got != want {
			t.Errorf("Retry-After for %s = %q, want %q", d, got, want)
		}
	}
}

// Credentials are never shown, and a query only if the refusal depends on it.
func TestRefusalHidesSecrets(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"http://u:secret@example.com/", "http://u:a@secret@example.com/x@y", "u:secret@example.com:443", "//u:secret@h",
		"secret@", "http://secret@[::1]?a", "x://secret@", "http:/u:secret@h", "u:secret@h/?u=http://a",
	} {
		for _, r := range refusing(t) {
			for _, accept := range forms {
				d, asked := sample(t, r)
				d.Detail, asked.URL, asked.Accept = "", url, accept
				if got := dump(Render(d, asked)); bytes.Contains(got, []byte("secret")) {
					t.Fatalf("%s, %s: %s", url, r, got)
				}
			}
		}
	}
	d, asked := sample(t, ReasonDisallowed)
	asked.URL = "https://example.com/a?token=secret"
	if r := Render(d, asked); strings.Contains(r.Reason+r.Header.Get("Proxy-Status"), "secret") || !strings.Contains(string(r.Body), "secret") {
		t.Errorf("got %s", dump(r))
	}
}

func TestDecisionHeaderOnAllowed(t *testing.T) {
	t.Parallel()
	for want, d := range map[string]Decision{
		"allow; reason=no_rule":                         {Allowed: true, Reason: ReasonNoRule},
		"allow; reason=allowed_by_rule; line=3":         {Allowed: true, Reason: ReasonAllowedByRule, Line: 3},
		"allow; reason=disallowed; line=12; would-deny": {Allowed: true, Reason: ReasonDisallowed, Line: 12, WouldDeny: true},
		"deny; reason=operator_deny":                    {Reason: ReasonOperatorDeny},
		"error; reason=internal":                        {},
	} {
		if got := d.Header(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestQuotedLines checks the part of a robots.txt that a refusal shows: the line that refused and
// its neighbours, with any content, in at most 4 KB.
func TestQuotedLines(t *testing.T) {
	t.Parallel()
	long := strings.Repeat(`"`, 5000)
	for name, tt := range map[string]struct {
		text string
		line int
		want string // the line numbers; the deciding line with its text
	}{
		"none":            {"Disallow: /", 0, ""},
		"middle":          {strings.Repeat("\n", 19) + "Disallow: /", 20, "15 16 17 18 19 20=Disallow: /"},
		"beginning":       {"Disallow: /a\r\rb\r\n", 1, "1=Disallow: /a 2 3"},
		"not in the text": {"a\nb", 40, ""},
		"hostile":         {"\tDisallow: /\x00\u202e<b>\xff", 1, `1= Disallow: /\x00\xe2\x80\xae<b>\xff`},
		"long":            {strings.Repeat(long+"\n", 20), 9, "4 5 6 7 8 9=" + strings.Repeat(`"`, 117) + "... 10 11 12 13 14"},
	} {
		d, asked := sample(t, ReasonDisallowed)
		d.quoted, asked.Accept = quotation{}, "text/html"
		without := len(Render(d, asked).Body)
		d.quoted = quotation{[]byte(tt.text), tt.line}
		var got []string
		for _, item := range regexp.MustCompile(`<li value="(\d+)">(<mark>)?(.*?)(?:</mark>)?</li>`).FindAllStringSubmatch(string(d.quoted.html()), -1) {
			if item[2] != "" {
				item[1] += "=" + html.UnescapeString(item[3])
			}
			got = append(got, item[1])
		}
		if s := strings.Join(got, " "); s != tt.want {
			t.Errorf("%s: %q, want %q", name, s, tt.want)
		}
		if r := Render(d, asked); len(r.Body)-without > 4<<10 {
			t.Errorf("%s: the quote adds %d bytes, want at most 4 KiB", name, len(r.Body)-without)
		}
	}
}

// TestWhoIsQuoted checks that the quoted text has the rules that refused, and that the decision on
// a permitted request keeps no text.
func TestWhoIsQuoted(t *testing.T) {
	t.Parallel()
	const text = "User-agent: *\nContent-Usage: train-ai=n\nDisallow: /a\n"
	identifier := mustIdentifier(t, IdentifierConfig{Agents: []Agent{
		{Name: "Reader"}, {Name: "Trainer", Purposes: []string{"train-ai"}},
	}})
	for _, tt := range []struct {
		path string
		mode Mode
		user string
		line int
	}{
		{"/a", ModeEnforce, "Reader", 3},
		{"/a", ModeReport, "Reader", 0},
		{"/b", ModeEnforce, "Reader", 0},
		{"/b", ModeEnforce, "Trainer", 2},
	} {
		e := newEnforcer(siteOf(rules(text), defaults), mustPolicy(t, PolicyConfig{Mode: tt.mode}), nil)
		e.Reads.RobotsTxt = true
		target := origin.Target{Origin: mustOrigin(t, "http://example.com"), Path: tt.path}
		d := e.Decide(t.Context(), Request{http.MethodGet, target, identifier.Identify(t.Context(), Sender{UserAgent: tt.user + "/1.0"})})
		if d.quoted.line != tt.line || (string(d.quoted.text) == text) != (tt.line > 0) {
			t.Errorf("%s: reason %s, quoted line %d of %q, want line %d", tt.path, d.Reason, d.quoted.line, d.quoted.text, tt.line)
		}
		body := string(Render(d, RequestInfo{Accept: "text/html"}).Body)
		if strings.Contains(body, "<mark>") != (tt.line > 0) {
			t.Errorf("%s: %s", tt.path, body)
		}
		later := Render(d.Refuse(ReasonKillSwitch, "", 0), RequestInfo{Accept: "text/html"})
		if bytes.Contains(later.Body, []byte("<mark>")) {
			t.Errorf("%s: a later refusal by a stop quotes the site", tt.path)
		}
	}
}

// TestRefusalHidesTheInside checks that a client learns no address, host or port that it did not
// send, from any error of the network, the resolver, the system or the guard. The log has all of
// it.
func TestRefusalHidesTheInside(t *testing.T) {
	t.Parallel()
	const inside = "lookup redis.internal on 10.0.0.2:53: no such host; socks connect crawl-upstream.corp:1080; " +
		"dial tcp [fd00::7]:40000->[fe80::1%eth0]:80; open /var/lib/gateway/key; x509: certificate is valid for wiki.corp"
	shows := func(d Decision) {
		t.Helper()
		if shown := escape.Printable(inside, maxShown); d.Record().Detail != shown {
			t.Errorf("%s: the log has %q", d.Reason, d.Record().Detail)
		}
		for form, accept := range forms {
			r := Render(d, RequestInfo{Method: http.MethodGet, URL: "https://a.example/", Accept: accept})
			all := fmt.Sprint(string(r.Body), r.Reason, r.Header)
			for _, hidden := range []string{"internal:", "redis", "corp", "10.0.", "fd00", "fe80", "1080", "40000", "eth0", "/var", "lookup", "wiki"} {
				if strings.Contains(all, hidden) {
					t.Errorf("%s (%s): the %s form has %[3]q: %[5]s", d.Reason, d.Cause, hidden, form, all)
				}
			}
		}
	}
	own := []Reason{ReasonCredentialsBusy, ReasonAgentLimit, "tls_certificate", "tls_alert"} // the gateway's own counts, and facts that the origin shows
	for _, r := range refusing(t) {
		fromOutside := r.Failure() && !slices.Contains(own, r) && r != ReasonCanceled
		if fromOutside || slices.Contains([]Reason{ReasonForbiddenAddress, ReasonForbiddenPort, ReasonOwnListener, "loop"}, r) {
			shows(Decision{}.Refuse(r, inside, 0))
		}
	}
	for _, cause := range []fetch.Cause{
		fetch.CauseDNS, fetch.CauseProtocol, fetch.CauseFTP, fetch.CauseForbiddenAddress, fetch.CauseForbiddenPort, fetch.CauseOwnListener, "",
	} {
		shows(Decision{State: fetch.StateUnreachable, Cause: cause}.Refuse(ReasonUnreachable, inside, 0))
	}
	for _, r := range append(own, ReasonClientNotAllowed) {
		if p := NewProblem(Decision{}.Refuse(r, "16384 at 203.0.113.9", 0), RequestInfo{}); p.Robots.Detail != "16384 at 203.0.113.9" {
			t.Errorf("%s: %q", r, p.Robots.Detail)
		}
	}
}
