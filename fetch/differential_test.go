package fetch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// permission is the most that an answer may permit, in ascending order.
type permission int

const (
	permitNothing permission = iota
	permitRules              // what closedRules permits: none of the requested paths
	permitAll
)

const closedRules = "User-agent: *\nDisallow: /\n# " + "that is all\n"

// recipe is a generated answer to GET /robots.txt: the site's intention, and what happened to it on
// the way.
type recipe struct {
	err      error // instead of an answer
	status   int
	location string
	second   int // the status at the target of a Location
	text     string
	applied  []string // the codings of the body
	declared string   // Content-Encoding
	spoil    string   // what happened to the coded body
	field    string   // one more field of the answer
	proxied  bool
	honest   bool // the declared codings are the applied ones, and nothing is damaged
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// sources are the parts from which recipes are made.
type sources struct {
	softPages, outages []string
	coded              map[string]string // by codings and text
}

func (s *sources) recipe(r *rand.Rand) recipe {
	var c recipe
	if r.IntN(12) == 0 {
		c.err = pick[error](r, syscall.ECONNRESET, io.EOF, errors.New("tls: bad certificate"), &net.DNSError{Err: "no such host"},
			&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, &net.OpError{Op: "dial", Err: syscall.EMFILE}, errors.New("malformed HTTP"), guardError(CauseForbiddenAddress))
	}
	c.status = pick(r, 200, 200, 200, 200, 203, 204, 206, 301, 302, 303, 304, 305, 307, 308, 500, 500, 500, 501, 502, 503, 504, 511, 520, 530, 100+r.IntN(520))
	c.location = pick(r, "", "/moved", "https://b.example/robots.txt", "/login?msg=sign in", "/50%-off?a=%", "/é?é|^`{}", `/a?b\c`, "?x=\"<>",
		"htps://b.example/r", "www.example.com:443/robots.txt", "www.b.example/robots.txt", "https//b.example/r", "localhost:80/r", "http://[::1/", `\a`,
		"http://u:p@b.example/", "file:///x", "mailto:a@b.example", "javascript:0", "/robots.txt")
	c.second = pick(r, 200, 200, 404, 500, 503, 429, 407)
	c.text = pick(r, closedRules, closedRules, closedRules, "", "<html><body>Welcome</body></html>", "# no rules\n")
	if r.IntN(3) == 0 {
		c.text = pick(r, pick(r, s.softPages...), pick(r, s.outages...))
	}
	c.applied = pick(r, nil, nil, []string{"gzip"}, []string{"br"}, []string{"zstd"}, []string{"deflate"}, []string{"gzip", "gzip"}, []string{"br", "gzip"})
	c.declared = strings.Join(c.applied, ", ")
	c.honest = true
	if r.IntN(3) == 0 {
		c.declared = pick(r, "", "identity", "none", "utf-8", "aws-chunked", "text/plain", "GZIP", "gzip, none", "compress", "dcb", "base64", "br", "zstd", "deflate", "gzip, gzip", ", ,")
		c.honest = false
	}
	if r.IntN(4) == 0 {
		c.spoil, c.honest = pick(r, "cut", "short", "tail", "flip"), false
	}
	c.field = pick(r, "", "", "", "Via: 1.1 p", "Proxy-Status: p; error=http_request_denied", "Proxy-Status: p; received-status=200", "X-Squid-Error: ERR_X 0", "Proxy-Authenticate: Basic")
	c.proxied = r.IntN(3) == 0
	return c
}

// body returns the body to send and the length to announce.
func (s *sources) body(tb testing.TB, r *rand.Rand, c *recipe) (data string, length int64) {
	tb.Helper()
	key := fmt.Sprint(c.applied, c.text)
	data, ok := s.coded[key]
	if !ok {
		b := []byte(c.text)
		for _, coding := range c.applied {
			b = encode(tb, coding, b)
		}
		data = string(b)
		s.coded[key] = data
	}
	length = int64(len(data))
	switch c.spoil {
	case "cut": // without a length that shows it
		data = data[:min(1+r.IntN(len(data)+1), len(data))]
		length = int64(len(data))
	case "short":
		length++
	case "tail":
		data += pick(r, "\x00", "<!-- cached -->", "\x1f\x8b\x08", "x")
		length = int64(len(data))
	case "flip":
		if b := []byte(data); len(b) > 0 {
			b[r.IntN(len(b))] ^= 1 << r.IntN(8)
			data = string(b)
		}
	}
	return data, length
}

// strictTarget matches request targets that a strict server accepts (RFC 9112 section 3.2).
var strictTarget = regexp.MustCompile(`^/(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]|%[0-9A-Fa-f]{2})*$`)

// most is the oracle. It applies RFC 9309 section 2.3.1 to the recipe, independently of the code.
func (s *sources) most(c *recipe, status int) permission {
	signed := strings.Contains(c.field, "error=") || strings.HasPrefix(c.field, "X-Squid") || strings.HasPrefix(c.field, "Proxy-Authenticate")
	switch {
	case c.err != nil, c.proxied && (signed || status == 407 || status == 511):
		return permitNothing
	case status == 204:
		return permitAll // an empty file
	case status == 206, status == 304, status == 407, status == 429, status == 430, status < 200, status > 599:
		return permitNothing
	case status < 300 && c.spoil == "short":
		return permitNothing
	case status < 300 && c.text == closedRules && !c.unnoticeable():
		return permitRules
	case status < 300:
		return permitAll
	case status < 400:
		return s.mostOfRedirect(c, status)
	case status < 500:
		return permitAll
	case (status == 500 || status == 501) && (slices.Contains(s.softPages, c.text) || c.unnoticeable()):
		return permitAll
	}
	return permitNothing
}

// unnoticeable reports whether nothing shows that the text is garbled: no checksum, length or
// coding that would break.
func (c *recipe) unnoticeable() bool {
	outer := ""
	if len(c.applied) > 0 {
		outer = c.applied[len(c.applied)-1]
	}
	spoilt := c.spoil == "cut" || c.spoil == "flip"
	undeclared := c.declared == "" || c.declared == "identity" || c.declared == ", ,"
	named := strings.Contains(strings.ToLower(c.declared), "gzip") || c.declared == "zstd" || c.declared == "deflate" || c.declared == "br"
	return spoilt && (outer == "" || outer == "br" || !named) || undeclared && (outer == "br" || outer == "deflate")
}

func (s *sources) mostOfRedirect(c *recipe, status int) permission {
	switch l := c.location; {
	case l == "", l == "/robots.txt", status == 305, strings.HasPrefix(l, "file:"), strings.HasPrefix(l, "mailto:"), strings.HasPrefix(l, "javascript:"):
		return permitAll // no target: section 2.3.1.2
	case strings.HasPrefix(l, "/"), strings.HasPrefix(l, "?"), l == "https://b.example/robots.txt":
		return s.most(c, c.second)
	}
	return permitNothing
}

// serve answers by the recipe, and answers an invalid request with 400.
func (s *sources) serve(tb testing.TB, r *rand.Rand, c *recipe) roundTripper {
	tb.Helper()
	data, length := s.body(tb, r, c)
	moved := false
	return func(req *http.Request) (*http.Response, error) {
		if c.err != nil {
			return nil, c.err
		}
		status, h := c.status, http.Header{}
		first := req.URL.String() == "http://a.example/robots.txt"
		madeUp := len(req.URL.Path) == len("/")+26+len(".txt")
		if moved = moved && !first || !first && !madeUp; moved {
			status = c.second
		} else if c.location != "" {
			h.Set("Location", c.location)
		}
		if !strictTarget.MatchString(req.URL.RequestURI()) {
			tb.Errorf("invalid request target %q", req.URL.RequestURI())
			status = http.StatusBadRequest
		}
		if c.declared != "" {
			h.Set("Content-Encoding", c.declared)
		}
		if name, value, ok := strings.Cut(c.field, ": "); ok {
			h.Set(name, value)
		}
		var body io.Reader = strings.NewReader(data)
		if status == http.StatusNoContent {
			return &http.Response{StatusCode: status, Header: h, Body: http.NoBody, ProtoMajor: 1, Request: req}, nil
		}
		if length > int64(len(data)) {
			body = io.MultiReader(body, failing{})
		}
		return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(body), ContentLength: length, ProtoMajor: 1, Request: req}, nil
	}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// permitted returns what a record permits now. A text without the rules permits everything.
func permitted(r Record) permission {
	switch access := (Policy{}).Access(r, t0); access {
	case AccessAllow:
		return permitAll
	case AccessRules, AccessLastGood:
		if text, _ := r.Text(); strings.HasPrefix(string(text.Body), "User-agent: *\nDisallow: /\n") {
			return permitRules
		}
		return permitAll
	case AccessDeny:
	}
	return permitNothing
}

// TestRFC9309_2_3_1_NoFailureIsPermission makes 100,000 answers from statuses, fields, Locations,
// codings and bodies. It compares what each permits with the most that it may permit, for an
// unknown origin and for one with an earlier record. A sound answer must permit exactly that.
func TestRFC9309_2_3_1_NoFailureIsPermission(t *testing.T) {
	t.Parallel()
	s := &sources{coded: map[string]string{}}
	for _, page := range errorPages(t, "soft404.txt") {
		if !strings.Contains(page, "PATH") {
			s.softPages = append(s.softPages, page)
		}
	}
	for _, page := range errorPages(t, "outage.txt") {
		s.outages = append(s.outages, page)
	}
	slices.Sort(s.softPages)
	slices.Sort(s.outages)
	rulesBefore := Outcome{Kind: KindRules, Body: []byte(closedRules)}
	befores := []struct {
		name string
		Record
		rest permission // permitted after a failure
	}{
		{"nothing", Record{}, permitNothing},
		{"fresh rules", after(Policy{}, -20*hour, rulesBefore), permitRules},
		{"old rules", after(Policy{}, -30*hour, rulesBefore), permitNothing},
		{"rules out of reach", after(Policy{}, -30*hour, rulesBefore, -5*hour, broken), permitNothing},
		{"fresh absence", after(Policy{}, -20*hour, gone), permitAll},
		{"old absence", after(Policy{}, -30*hour, gone), permitNothing},
	}
	r := rand.New(rand.NewPCG(9309, 231))
	seen := map[permission]int{}
	for n := range 100_000 {
		c := s.recipe(r)
		f := New(Config{Transport: s.serve(t, r, &c), Soft404: true, Proxied: func(string) bool { return c.proxied }})
		out := Try(false, func() Outcome { return f.Fetch(t.Context(), mustKey(t, "http://a.example"), nil) })
		most := s.most(&c, c.status)
		seen[most]++
		for _, before := range befores {
			limit, known := most, before.State == StateRules || before.LastGood != nil
			if most == permitNothing || known && out.Cause == CauseSoft404 {
				limit = before.rest
			}
			got := permitted((Policy{}).Next(before.Record, out, t0))
			sound := c.honest && (before.State == StateUnknown || out.Kind != KindUnreachable)
			if got > max(limit, before.rest) || out.Kind != KindUnreachable && out.Cause != CauseSoft404 && got > limit || sound && got != limit {
				t.Errorf("answer %d, before it %s: permits %d, want %d: %s/%s (%s), %d hops, for %+v", n, before.name, got, limit, out.Kind, out.Cause, out.Detail, len(out.Hops), c)
			}
		}
		if t.Failed() {
			return
		}
		if !bytes.Equal(out.Body, nil) && out.Kind != KindRules {
			t.Errorf("answer %d: %s with a body", n, out.Kind)
		}
	}
	for p := permitNothing; p <= permitAll; p++ {
		if seen[p] < 5_000 {
			t.Errorf("only %d recipes may permit at most %d, want at least 5,000", seen[p], p)
		}
	}
}
