package enforce

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"html/template"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/internal/pagestyle"
	"github.com/crawlgate/crawlgate/internal/redact"
)

// Name is the gateway's name in Proxy-Status (RFC 9209 section 2) and Via.
const Name = "crawlgate"

// HeaderSignals shows the crawler what the site says about the use of its content, as a dictionary
// of RFC 9651. The gateway must remove a field of that name from an origin's answer.
const HeaderSignals = "Crawlgate-Signals"

// Help says where the pages are that explain reasons: the URL is Base, the reason's slug and
// Suffix. Without a Suffix the pages are the operator's.
type Help struct{ Base, Suffix string }

// HelpAt returns the project's pages at a tag, a commit or a branch. The zero Help refers to the
// branch main.
func HelpAt(ref string) Help {
	return Help{"https://github.com/crawlgate/crawlgate/blob/" + ref + "/docs/problems/", ".md"}
}

// URL returns the URL of the page for a reason.
func (h Help) URL(r Reason) string {
	if h == (Help{}) {
		h = HelpAt("main")
	}
	return h.Base + r.Slug() + h.Suffix
}

// RequestInfo has the facts of a request that its refusal shows.
type RequestInfo struct {
	// Method and URL are the request's; the URL of a CONNECT is the authority.
	Method, URL string
	// Accept is the value of the Accept field, several fields joined by commas.
	Accept string
	// Help is the place of the page for the type of the problem.
	Help Help
	// Docs is the URL of the gateway's own documentation, as this client reaches it. Crawlers often
	// reach no other site. The link for readers leads there, unless Help is the operator's or Docs is
	// empty.
	Docs string
}

// more returns the URL of the page for readers.
func (i RequestInfo) more(r Reason) string {
	byOperator := i.Help.Base != "" && i.Help.Suffix == ""
	if i.Docs == "" || byOperator || r == ReasonClientNotAllowed { // that client may not read Docs either
		return i.Help.URL(r)
	}
	return i.Docs + "problems/" + r.Slug()
}

// Refusal is an answer of the gateway itself.
type Refusal struct {
	Status int
	// Reason is a reason phrase of less than 100 bytes. Many clients show nothing else. HTTP/2 has no
	// reason phrase.
	Reason string
	// Header belongs to the caller. It has neither Content-Length nor Connection, which the server
	// sets.
	Header http.Header
	Body   []byte
}

// Render returns the refusal for a decision. A decision that allows is refused as [ReasonInternal]:
// a caller that renders a refusal must not let the request pass.
func Render(d Decision, asked RequestInfo) Refusal {
	p := NewProblem(d, asked)
	form := Negotiate(asked.Accept)
	r := Refusal{Status: p.Status, Reason: p.phrase, Header: make(http.Header, 8)}
	switch form {
	case FormJSON:
		r.Body = p.JSON()
	case FormHTML:
		r.Body = p.HTML()
		// The body contains text of the client and the site, and needs only its style.
		r.Header.Set("Content-Security-Policy", pagestyle.Policy)
	default:
		r.Body = p.Text()
	}
	r.Header.Set("Content-Type", string(form))
	r.Header.Set("X-Content-Type-Options", "nosniff")
	r.Header.Set("Cache-Control", "no-store")
	r.Header.Set("Proxy-Status", p.proxyStatus)
	r.Header.Set(HeaderDecision, p.decision)
	if p.RetryAfter > 0 {
		r.Header.Set("Retry-After", strconv.FormatInt(p.RetryAfter, 10))
	}
	if p.Status == http.StatusProxyAuthRequired {
		r.Header.Set("Proxy-Authenticate", `Basic realm="`+Name+`", charset="UTF-8"`)
	}
	if p.Status == http.StatusMethodNotAllowed {
		r.Header.Set("Allow", http.MethodGet+", "+http.MethodHead)
	}
	return r
}

// Problem is a refusal as problem details (RFC 9457). Field names are stable.
type Problem struct {
	// Type is the page that explains the reason, see [Help]. It is the same at all gateways of a
	// version.
	Type string `json:"type"`
	// Title is the same for all problems of a type. Detail is one line about this problem.
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail"`
	// Hint says what to do.
	Hint string `json:"hint,omitempty"`
	// More is the page that explains the reason, where the client can reach it.
	More string `json:"more"`
	// Method and URL are the request's.
	Method string `json:"method,omitempty"`
	URL    string `json:"url,omitempty"`
	// JudgedAs is the path and query that servers resolve the URL to, if the rules disallow that form.
	JudgedAs string `json:"judged_as,omitempty"`
	// FetchedAt is when the robots.txt that decided was fetched or, if the site does not answer, when
	// it was last asked. ExpiresAt is when it has to be fetched again (RFC 3339).
	FetchedAt string `json:"fetched_at,omitempty"`
	ExpiresAt string `json:"expires_at,omitempty"`
	// RetryAfter is in seconds, as in the field Retry-After.
	RetryAfter int64 `json:"retry_after_s,omitempty"`
	// Robots is the same object as in the access log.
	Robots LogRecord `json:"robots"`

	phrase, proxyStatus, decision string
	quoted                        quotation
}

// NewProblem describes a refusal. It is pure, and cuts and escapes all foreign text.
func NewProblem(d Decision, asked RequestInfo) Problem {
	if d.Allowed || !d.Reason.Valid() || d.Reason.Allows() {
		d = d.Refuse(ReasonInternal, "", 0)
	}
	switch {
	case d.Reason.Info().Private:
		d.Detail = ""
	case d.Reason == ReasonUnreachable:
		d.Detail = d.Cause.Tell(d.Detail)
	}
	url := escape.ASCII(redact.Target(asked.Method, asked.URL), maxShown)
	if url == "" {
		url = d.host()
	}
	fit := d.summary(url)
	p := Problem{
		Type:       asked.Help.URL(d.Reason),
		Title:      d.Reason.Info().Title,
		Status:     d.Reason.Info().Status,
		Detail:     fit(maxSummary),
		Hint:       d.Reason.Info().Hint,
		More:       asked.more(d.Reason),
		Method:     escape.ASCII(asked.Method, maxWho),
		URL:        url,
		JudgedAs:   escape.ASCII(d.Judged, maxShown),
		FetchedAt:  stamp(d.FetchedAt),
		ExpiresAt:  stamp(d.FreshUntil),
		RetryAfter: RetrySeconds(d.RetryAfter),
		Robots:     d.Record(),
		phrase:     fit(maxPhrase),
		decision:   d.Header(),
	}
	if d.Reason == ReasonDisallowed || d.Reason == ReasonPreferenceDenied {
		p.quoted = d.quoted // the decision was made by another reason after the rules
	}
	p.proxyStatus = Name
	if token := d.Reason.Info().ProxyError; token != "" {
		p.proxyStatus += "; error=" + token
	}
	p.proxyStatus += `; details="` + sfEscapes.Replace(p.Detail) + `"`
	return p
}

// sfEscapes escapes a structured-field string (RFC 9651 section 4.1.6). It is made once, because
// its tables take 2 KB.
var sfEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// JSON returns p as application/problem+json, indented.
func (p Problem) JSON() []byte {
	b, _ := json.MarshalIndent(p, "", "  ") // strings, finite numbers and booleans always marshal
	return append(b, '\n')
}

// Text returns p as text/plain. The first line is complete in itself and has at most 120 bytes.
func (p Problem) Text() []byte {
	var b bytes.Buffer
	b.WriteString(p.Detail + "\n\n")
	for _, f := range p.facts() {
		b.WriteString(f.Name + ":" + strings.Repeat(" ", max(factColumn-len(f.Name), 1)) + f.Value + "\n")
	}
	return b.Bytes()
}

// factColumn is the width of the longest name in facts.
const factColumn = 12

//go:embed refusal.html
var refusalPage string

var refusalTemplate = template.Must(template.New("refusal").Parse(
	`{{define "head"}}` + pagestyle.Head + `{{end}}{{define "brand"}}` + pagestyle.Brand + `{{end}}` + refusalPage))

// HTML returns p as a page for browsers. The icon in it keeps browsers from requesting one through
// the proxy. If a line of a robots.txt refused, the page shows it with the lines around it. The
// page's only link leads to the reason's page, and tells crawlers not to follow it.
func (p Problem) HTML() []byte {
	var b bytes.Buffer
	b.Grow(len(pagestyle.CSS) + 8<<10)
	// A buffer takes everything, and the page has no calls that fail.
	_ = refusalTemplate.Execute(&b, struct {
		Problem
		Facts, Lines template.HTML
	}{p, factsHTML(p.facts()), p.quoted.html()})
	return b.Bytes()
}

// fact is one line of a refusal.
type fact struct{ Name, Value string }

// factsHTML is a list of facts as HTML. A template would take as long for this list as for the rest
// of the page.
func factsHTML(facts []fact) template.HTML {
	var b strings.Builder
	for _, f := range facts {
		b.WriteString("<dt>" + f.Name + "</dt><dd>" + template.HTMLEscapeString(f.Value) + "</dd>\n")
	}
	return template.HTML(b.String()) //nolint:gosec // all foreign text is escaped above
}

// facts lists the facts of a decision, in the order in which a human checks them.
func (p Problem) facts() []fact {
	r := p.Robots
	fetched := "fetched"
	if r.State == "unreachable" && r.SHA256 == "" {
		fetched = "last tried"
	}
	all := []fact{
		{"asked", strings.TrimSpace(p.Method + " " + p.URL)},
		{"judged as", p.JudgedAs},
		{"agent", describeAgent(r)},
		{"owner", r.Owner},
		{"contact", r.Contact},
		{"robots.txt", r.RobotsURL},
		{"line", number(int64(r.Line), "")},
		{"rule", describeRule(r)},
		{"group", r.Group},
		{"preference", r.Conflict},
		{"state", describeState(r)},
		{fetched, p.FetchedAt},
		{"expires", p.ExpiresAt},
		{"sha256", r.SHA256},
		{"retry after", number(p.RetryAfter, " s")},
		{"detail", r.Detail},
		{"what to do", p.Hint},
		{"reason", string(r.Reason)},
		{"more", p.More},
		{"answered by", Name + ", a gateway between crawler and site; not by the site itself"},
	}
	return slices.DeleteFunc(all, func(f fact) bool { return f.Value == "" })
}

func describeAgent(r LogRecord) string {
	s := r.Agent
	if s == "" {
		s = "unknown"
	}
	if r.IdentifiedBy != "" {
		s += " (by " + strings.ReplaceAll(r.IdentifiedBy, "+", ", ") + ")"
	}
	if len(r.Tokens) > 0 {
		s += ", product token " + strings.Join(r.Tokens, ", then ")
	}
	return s
}

func describeRule(r LogRecord) string {
	switch {
	case r.Line == 0:
		return ""
	case r.Reason == ReasonDisallowed:
		return "Disallow: " + r.Rule
	default:
		return r.Rule
	}
}

func describeState(r LogRecord) string {
	switch {
	case r.Source == "none":
		return "" // no record was needed
	case r.Cause != "":
		return r.State + " (" + r.Cause + ")"
	default:
		return r.State
	}
}

// number is empty for 0.
func number(n int64, unit string) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10) + unit
}

// stamp formats a time; the zero time is empty.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// Form is the form of a refusal's body: its media type.
type Form string

// The forms of a refusal.
const (
	FormText Form = "text/plain; charset=utf-8" // its first line is complete in itself
	FormJSON Form = "application/problem+json"  // RFC 9457
	FormHTML Form = "text/html; charset=utf-8"  // for browsers
)

// formOf finds the form that a media range asks for. JSON and HTML must be named explicitly.
var formOf = map[string]Form{
	"application/json":         FormJSON,
	"application/problem+json": FormJSON,
	"text/html":                FormHTML,
	"application/xhtml+xml":    FormHTML,
	"text/plain":               FormText,
	"text/*":                   FormText,
	"*/*":                      FormText,
}

// Negotiate chooses the form of a refusal by the value of an Accept field (RFC 9110 section
// 12.5.1), several fields joined by commas. It takes the media range with the greatest weight, or
// the first of equal ones. If the field is malformed or accepts none of the three forms, the form
// is text: a refusal is never withheld because of its form.
func Negotiate(accept string) Form {
	best, form := 0.0, FormText
	for mediaRange := range strings.SplitSeq(accept, ",") {
		name, params, err := mime.ParseMediaType(mediaRange)
		if err != nil {
			continue
		}
		f, ours := formOf[name]
		if weight := weightOf(params); ours && weight > best {
			best, form = weight, f
		}
	}
	return form
}

// weightOf reads a weight from 0 to 1 (RFC 9110 section 12.4.2). It returns 0 for a malformed one.
func weightOf(params map[string]string) float64 {
	q, ok := params["q"]
	if !ok {
		return 1
	}
	weight, err := strconv.ParseFloat(q, 64)
	if err != nil || weight > 1 || len(q) > len("0.000") {
		return 0
	}
	return weight
}
