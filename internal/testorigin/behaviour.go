package testorigin

import (
	"errors"
	"fmt"
	"html"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Meaning is what a crawler has to conclude from a robots.txt answer according to RFC 9309 section
// 2.3.1. It is what an oracle expects of the code under test, written without any of that code.
type Meaning uint8

const (
	// MeansUnreachable is section 2.3.1.4: complete disallow. So is every answer that is invalid or
	// cannot be read completely.
	MeansUnreachable Meaning = iota
	// MeansRules is section 2.3.1.1: Behaviour.Rules decide.
	MeansRules
	// MeansAbsent is section 2.3.1.3: the site has no rules.
	MeansAbsent
	// MeansRedirect is section 2.3.1.2: it depends on where the redirect leads.
	MeansRedirect
)

// String returns "unreachable", "rules", "absent" or "redirect".
func (m Meaning) String() string {
	switch m {
	case MeansRules:
		return "rules"
	case MeansAbsent:
		return "absent"
	case MeansRedirect:
		return "redirect"
	default:
		return "unreachable"
	}
}

// Behaviour is how a site answers. It is an immutable value that many sites and connections may
// share; Name, Meaning and Rules may be changed in a copy before it is used. The zero value is not
// a behaviour.
type Behaviour struct {
	// Name identifies the behaviour in records.
	Name string
	// Meaning is what a crawler has to conclude from it as a robots.txt. If that depends on the
	// crawler's patience or limits, the comment of the constructor says so.
	Meaning Meaning
	// Rules is the decoded text that a crawler gets, for MeansRules.
	Rules []byte

	where     stage
	cert      Certificate
	handshake func(*session) error // instead of TLS; nil: TLS with cert
	serve     func(*session) error
}

// stage is the part of a connection's life that a behaviour affects.
type stage uint8

const (
	atRequest stage = iota
	atHandshake
	atDial
)

// NeedsTLS reports whether only an https site can behave like this.
func (b Behaviour) NeedsTLS() bool { return b.where == atHandshake }

// errOtherHandshake ends a connection that was made before the present behaviour, which would have
// broken it.
var errOtherHandshake = errors.New("the connection is older than the behaviour")

// After returns b with a delay of d before the first byte of each answer. Whether a crawler still
// gets b depends on its time limits.
func (b Behaviour) After(d time.Duration) Behaviour {
	mustBeHTTP(b)
	serve := b.serve
	b.Name += " after " + d.String()
	b.serve = func(s *session) error {
		if err := s.wait(d); err != nil {
			return err
		}
		return serve(s)
	}
	return b
}

// ThenPages returns b for the first request, and the site's HTML pages from the second on. All
// users of the returned value are counted together.
func (b Behaviour) ThenPages() Behaviour {
	mustBeHTTP(b)
	var asked atomic.Bool
	first := b.serve
	b.Name += ", then pages"
	b.serve = func(s *session) error {
		if asked.CompareAndSwap(false, true) {
			return first(s)
		}
		return servePage(s)
	}
	return b
}

// Refuse returns a host on which nothing listens: connections are refused.
func Refuse() Behaviour {
	return Behaviour{Name: "refuse connections", where: atDial, serve: (*session).reset}
}

// Response is a correct HTTP response. Date, Content-Type (plain text in UTF-8) and Content-Length
// are added if Header lacks them.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

// Respond answers with r. Its meaning follows from the status as in RFC 9309 section 2.3.1; 429
// counts as a server error, according to Google's specification
// (https://developers.google.com/crawling/docs/robots-txt/robots-txt-spec), and so does 430.
func Respond(r Response) Behaviour {
	r.Header, r.Body = r.Header.Clone(), slices.Clone(r.Body)
	b := Behaviour{
		Name:    fmt.Sprintf("status %d", r.Status),
		Meaning: meaningOf(r.Status, r.Header.Get("Location") != ""),
		serve:   func(s *session) error { return s.respond(r) },
	}
	if b.Meaning == MeansRules && bodyAllowed(r.Status) {
		b.Rules = r.Body
	}
	return b
}

// OK answers 200 with rules.
func OK(rules string) Behaviour {
	return Respond(Response{Status: http.StatusOK, Body: []byte(rules)})
}

// Status answers with a status and a body without rules. After a status below 200 no final one
// follows.
func Status(status int) Behaviour {
	return Respond(Response{Status: status, Body: []byte(reasonPhrase(status) + "\n")})
}

// Redirect answers with a redirect. The location is sent unchanged: absolute, relative, to a site
// of another scheme or host, to itself, or invalid. A loop or a scheme without robots.txt means
// absent: change Meaning for these.
func Redirect(status int, location string) Behaviour {
	b := Respond(Response{Status: status, Header: http.Header{"Location": {location}}})
	b.Name = fmt.Sprintf("redirect %d to %s", status, location)
	return b
}

// RedirectLoop redirects robots.txt to itself.
func RedirectLoop() Behaviour {
	b := Redirect(http.StatusFound, robotsPath)
	b.Name, b.Meaning = "redirect loop", MeansAbsent
	return b
}

// meaningOf returns the meaning of a status according to RFC 9309 section 2.3.1.
func meaningOf(status int, hasLocation bool) Meaning {
	switch {
	case 200 <= status && status < 300:
		return MeansRules
	case 300 <= status && status < 400 && hasLocation:
		return MeansRedirect
	case 300 <= status && status < 500 && status != http.StatusProxyAuthRequired && status != http.StatusTooManyRequests && status != 430:
		return MeansAbsent
	default:
		return MeansUnreachable
	}
}

// htmlPages answers any path with a small page of links.
var htmlPages = Behaviour{
	Name:    "page",
	Meaning: MeansRules, // as a robots.txt, the parts of the HTML that parse
	serve:   servePage,
}

func servePage(s *session) error {
	path := s.request.path()
	return s.respond(Response{
		Status: http.StatusOK,
		Header: http.Header{"Content-Type": {"text/html; charset=utf-8"}},
		Body:   htmlPage(path, linksOf(s.site.paths, path)),
	})
}

// linksOf returns the links of the page at path: / links to all pages, and each page to its
// successor and to /.
func linksOf(paths []string, path string) []string {
	if path == "/" {
		return paths
	}
	links := []string{"/"}
	if i := slices.Index(paths, path); i >= 0 && i+1 < len(paths) {
		links = append(links, paths[i+1])
	}
	return links
}

func htmlPage(path string, links []string) []byte {
	var page strings.Builder
	title := html.EscapeString(path)
	page.WriteString("<!DOCTYPE html>\n<html lang=\"en\"><head><title>" + title + "</title></head>\n<body><h1>" + title + "</h1>\n<ul>\n")
	for _, link := range links {
		link = html.EscapeString(link)
		page.WriteString("<li><a href=\"" + link + "\">" + link + "</a></li>\n")
	}
	page.WriteString("</ul></body></html>\n")
	return []byte(page.String())
}

// bombSize and oversize exceed what a crawler has to read of a robots.txt (RFC 9309 section 2.5: at
// least 500 KiB), but are small enough to have many of.
const (
	bombSize = 8 << 20
	oversize = 600 << 10
)

// Catalogue returns one behaviour of each kind for sites of a scheme, all with the same rules if
// they have any. They are used in chaos tests and table tests. No two have the same name.
func Catalogue(scheme, rules string) []Behaviour {
	all := slices.Concat(correct(rules), broken(rules))
	for _, coding := range Codings {
		all = append(all, Encoded(coding, rules), LyingCoding(coding, rules), CutCoding(coding, rules), Bomb(coding, rules, bombSize))
	}
	if scheme == "https" {
		for kind := CertificateExpired; kind <= CertificateWrongHost; kind++ {
			all = append(all, BadCertificate(kind, rules))
		}
		all = append(all, HandshakeAlert(), HandshakePlain(), HandshakeHang(), HandshakeReset())
	}
	return all
}

// correct returns answers that HTTP permits.
func correct(rules string) []Behaviour {
	return slices.Concat(successes(rules), statuses(), redirects())
}

func successes(rules string) []Behaviour {
	return []Behaviour{
		OK(rules),
		Respond(Response{
			Status: http.StatusPartialContent,
			Header: http.Header{"Content-Range": {"bytes 0-99/100"}},
			Body:   []byte(rules),
		}),
		Chunked(rules),
		UntilClose(rules),
		RawDeflate(rules),
		UTF16(rules),
		WrongCharset(rules),
		HTML(),
		Oversize(rules, oversize),
		Informational(OK(rules), http.StatusContinue, http.StatusEarlyHints),
	}
}

func statuses() []Behaviour {
	codes := []int{204, 300, 304, 400, 401, 403, 404, 410, 418, 429, 430, 451, 500, 502, 503, 504, 599}
	all := make([]Behaviour, len(codes))
	for i, code := range codes {
		all[i] = Status(code)
	}
	return all
}

// redirects returns redirects to the site's first page, which has no rules unless SetPages gives it
// some, and to nowhere.
func redirects() []Behaviour {
	toPage := Redirect(http.StatusMovedPermanently, "/")
	toPage.Meaning = MeansRules
	toNoHost := Redirect(http.StatusMovedPermanently, "http://")
	toNoHost.Meaning = MeansUnreachable
	return []Behaviour{
		toPage, toNoHost, RedirectLoop(), redirectNowhere("file:///etc/passwd"), redirectNowhere("mailto:bots@example.com"),
	}
}

// redirectNowhere returns a redirect to a scheme without robots.txt.
func redirectNowhere(location string) Behaviour {
	b := Redirect(http.StatusMovedPermanently, location)
	b.Meaning = MeansAbsent
	return b
}

// broken returns failures of the network or of HTTP.
func broken(rules string) []Behaviour {
	half := len(rules) / 2
	return []Behaviour{
		Refuse(),
		Drip(rules, time.Minute),
		HangBeforeHead(),
		HangInHead(),
		HangInBody(rules, half),
		CloseAtOnce(),
		ResetAtOnce(),
		ResetInHead(),
		ResetInBody(rules, half),
		ShortBody(rules, half),
		MissingLastChunk(rules),
		BrokenChunk(rules),
		InvalidStatusLine(rules),
		NotHTTP(),
		ConflictingLengths(rules),
		EndlessHead(),
		OnlyInformational(http.StatusContinue, http.StatusEarlyHints),
		OnlyInformational(http.StatusProcessing),
		UnknownCoding(rules),
	}
}
