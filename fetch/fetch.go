package fetch

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/sync/semaphore"
)

// MinSize is the smallest limit on the size of a file, and the default: 500 KiB (RFC 9309 section
// 2.5, Google's specification).
const MinSize = 500 << 10

// Defaults of Config.
const (
	defaultTimeout      = 20 * time.Second
	defaultMaxRedirects = 5
)

// maxDecoders is how many coded bodies are decoded at a time. A decoder needs some milliseconds
// and, for a hostile window, up to 16 MiB.
const maxDecoders = 4

// Config is what a [Fetcher] needs. Durations and counts that are zero take their default.
type Config struct {
	// Transport makes single exchanges, with FTP servers too; required. Every address that it dials
	// must have passed the address guard. A refusal is an error with a method Forbidden() string,
	// which returns one of the causes for it, such as CauseForbiddenPort. It must honour the
	// context of a request in all its phases, bound the size of response headers, and leave bodies
	// coded (DisableCompression).
	Transport http.RoundTripper
	// Proxied reports whether requests to a host pass an upstream proxy, which may answer them
	// itself: such an answer says nothing about the site. Nil: none do.
	Proxied func(host string) bool
	// Path is where the file is; default /robots.txt.
	Path string
	// UserAgent is sent with every request, unless the key has an agent; none is sent if it is empty
	// or cannot be sent.
	UserAgent string
	// Timeout bounds a retrieval as a whole, redirects included; default 20 s. There is no other time
	// limit: a server may use it up before the header, in a body that stalls, or byte by byte.
	Timeout time.Duration
	// MaxRedirects is how many redirects are followed; default 5, negative none. RFC 9309 section
	// 2.3.1.2 asks for at least 5.
	MaxRedirects int
	// MaxSize is how much of a file is kept, in bytes after decoding; MinSize is the default and
	// the least.
	MaxSize int
	// Soft404 looks for servers that answer 500 when they mean 404 (Google's specification: "HTTP
	// status codes"). Without it, every 5xx is unreachable.
	Soft404 bool
}

// Fetcher retrieves robots.txt files, or files at another path. It is safe for concurrent use and
// keeps no state between retrievals. The caller decides how many run at a time.
type Fetcher struct {
	cfg      Config // with defaults
	decoders *semaphore.Weighted
}

// New returns a fetcher. It panics if cfg has no Transport.
func New(cfg Config) *Fetcher {
	if cfg.Transport == nil {
		panic("fetch: Config.Transport is nil")
	}
	cfg.Path = cmp.Or(cfg.Path, "/robots.txt")
	cfg.Timeout = cmp.Or(max(cfg.Timeout, 0), defaultTimeout)
	cfg.MaxRedirects = cmp.Or(cfg.MaxRedirects, defaultMaxRedirects)
	cfg.MaxSize = max(cfg.MaxSize, MinSize)
	if !httpguts.ValidHeaderFieldValue(cfg.UserAgent) {
		cfg.UserAgent = ""
	}
	return &Fetcher{cfg: cfg, decoders: semaphore.NewWeighted(maxDecoders)}
}

// Gate bounds how many answers are read at once. It is called when the first byte of an answer has
// arrived, and returns when the answer may be read or ctx has ended. ctx lasts until the answer has
// been read. The time limit of the retrieval keeps running.
type Gate func(ctx context.Context)

// Fetch makes one retrieval of the robots.txt of k.Origin, with k.Agent as User-Agent if there is
// one. It never fails: an error becomes an unreachable [Outcome]. It returns within Config.Timeout,
// having kept at most Config.MaxSize bytes, and leaves no goroutine behind; a caller that ends ctx
// gets CauseCanceled, or CauseTimeout at a deadline. Each answer, including redirects, waits for
// the gate before it is read. A nil gate never waits.
func (f *Fetcher) Fetch(ctx context.Context, k Key, gate Gate) Outcome {
	started := time.Now()
	ctx, cancel := context.WithTimeout(ctx, f.cfg.Timeout)
	defer cancel()

	out := f.followRedirects(ctx, k, gate)
	out.Started, out.Duration = started, time.Since(started)
	return out
}

// followRedirects follows redirects to an answer. The answer always belongs to the origin that was
// asked first (RFC 9309 section 2.3.1.2).
func (f *Fetcher) followRedirects(ctx context.Context, k Key, gate Gate) Outcome {
	u, err := url.Parse(k.Origin.String() + f.cfg.Path)
	if err != nil {
		return failf(CauseProtocol, "origin without a URL").outcome(0)
	}
	r := &retrieval{Fetcher: f, key: k, gate: gate, seen: []string{u.String()}, at: u}
	for {
		out, again := r.hop(ctx)
		if !again {
			out.Hops, out.Final = r.hops, r.final()
			return out
		}
	}
}

// hop requests the current URL of r. If the answer is a redirect that can be followed, hop moves r
// to its target and returns true.
//
// The statuses mean what docs/status-table.md says. A status outside the table is invalid, hence
// unreachable. Notes on some of them:
//
//   - 206: no part was asked for, so the body is a piece of the file. Invalid.
//   - 304: the request was not conditional. The server believes that we
//     hold a copy, so there is a file and "absent" would be wrong. Invalid.
//   - 300, 306 and unassigned 3xx: as 300 (RFC 9110 section 15), which a Location
//     may direct. Without a usable one they mean absent.
//   - 407: only a proxy may ask for this (RFC 9110 section 15.5.8). Invalid.
//   - 305: its Location would be a proxy, which RFC 9110 section 15.4.6 forbids to
//     use. It leads nowhere.
//   - 429, and 430 of shops: the server would not answer this sender now, which says
//     nothing about the file. Unreachable.
//   - 1xx as final answer, and what lies outside 100 to 599: invalid.
func (r *retrieval) hop(ctx context.Context) (out Outcome, again bool) {
	resp, fail := r.get(ctx, r.at)
	if fail != nil {
		return fail.outcome(0), false
	}
	defer resp.close()

	if r.at.Scheme == "ftp" {
		return resp.ftpFile(r.cfg.MaxSize), false
	}
	switch status := resp.StatusCode; {
	case IsThrottle(status), status/100 == 5:
		if r.cfg.Soft404 && r.isSoft404(ctx, resp) {
			return resp.absent(CauseSoft404, "error page that says not found"), false
		}
		out := failf(CauseStatus, "").outcome(status)
		out.RetryAfter = min(ParseRetryAfter(resp.Header.Get("Retry-After"), time.Now()), maxRetryAfter)
		return out, false
	case status/100 == 2 && status != http.StatusPartialContent:
		return resp.rules(r.cfg.MaxSize), false
	case status == http.StatusUseProxy:
		return resp.absent(CauseRedirects, "redirect to a proxy"), false
	case status/100 == 3 && status != http.StatusNotModified:
		kind, fail := r.redirect(resp.Header.Get("Location"))
		switch {
		case fail == nil:
			return Outcome{}, true
		case kind == KindAbsent:
			return resp.absent(fail.cause, fail.detail), false
		default:
			return fail.outcome(status), false
		}
	case status/100 == 4 && status != http.StatusProxyAuthRequired:
		return resp.absent(CauseStatus, ""), false
	default:
		return failf(CauseProtocol, "status %d is not an answer to this request", status).outcome(status), false
	}
}

// rules returns the outcome of an answer whose body is the file.
func (resp *response) rules(limit int) Outcome {
	text, more, fail := resp.text(limit)
	if fail != nil {
		return fail.outcome(resp.StatusCode)
	}
	if end := bytes.LastIndexAny(text, "\r\n"); more && end >= 0 {
		text = text[:end+1] // half a path would be a wider rule than the site wrote
	}
	out := resp.good(KindRules)
	out.Body, out.Truncated = text, more
	return out
}

func (resp *response) absent(cause Cause, detail string) Outcome {
	out := resp.good(KindAbsent)
	out.Cause, out.Detail = cause, detail
	return out
}

// good returns the common part of all good outcomes.
func (resp *response) good(kind Kind) Outcome {
	out := Outcome{Kind: kind, Status: resp.StatusCode}
	out.readFreshness(resp.Header)
	return out
}

// ftpFile is the outcome of an FTP server's answer, which the transport presents as one of HTTP.
// The file is retrieved with an anonymous login (Google's specification). A missing file, or a
// directory in its place, is absent. Everything else, such as a refused login, is unreachable. FTP
// has no redirects, freshness or status.
func (resp *response) ftpFile(limit int) Outcome {
	var out Outcome
	switch resp.StatusCode {
	case http.StatusOK:
		out = resp.rules(limit)
	case http.StatusNotFound, http.StatusMovedPermanently:
		out = resp.absent(CauseFTP, resp.said())
	default:
		out = failf(CauseFTP, "%s", resp.said()).outcome(0)
	}
	out.Status = 0
	return out
}

// said returns the text of a short answer, as far as it can be read.
func (resp *response) said() string {
	text, _, _ := resp.read(MaxDetail)
	return detailf("%s", text)
}
