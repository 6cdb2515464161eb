package fetch

import (
	"bufio"
	"cmp"
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/crawlgate/crawlgate/internal/coding"
)

// response is an answer whose header has arrived and whose body may be read. close ends it in any
// state.
type response struct {
	*http.Response

	ctx      context.Context
	cancel   context.CancelFunc
	body     *bufio.Reader
	decoders *semaphore.Weighted
}

// get sends a non-conditional GET and waits for the header of the answer. The caller must close it.
func (r *retrieval) get(ctx context.Context, u *url.URL) (*response, *failure) {
	ctx, cancel := context.WithCancel(ctx)
	var answered atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		// net/http reads no more from the connection until the hook returns.
		GotFirstResponseByte: func() {
			answered.Store(true)
			if r.gate != nil {
				r.gate(ctx)
			}
		},
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		cancel()
		return nil, failf(CauseProtocol, "making the request: %s", reason(err))
	}
	// An empty value keeps net/http from naming itself.
	req.Header.Set("User-Agent", cmp.Or(r.key.Agent, r.cfg.UserAgent))
	req.Header.Set("Accept", "text/plain, */*;q=0.5")
	req.Header.Set("Accept-Encoding", acceptEncoding)

	got, err := r.cfg.Transport.RoundTrip(req)
	if err == nil && ctx.Err() != nil {
		// If the answer comes just as the time runs out, net/http may return the answer or the error.
		got.Body.Close() //nolint:errcheck,gosec // it is not needed
		err = ctx.Err()
	}
	if err != nil {
		fail := failed(ctx, err)
		cancel()
		if fail.cause.forbidden() && answered.Load() {
			// An FTP server that was reached names a data connection that the guard refuses.
			fail = failf(CauseFTP, "data connection: %s", fail.detail)
		}
		return nil, fail
	}
	resp := &response{Response: got, ctx: ctx, cancel: cancel, body: bufio.NewReader(got.Body), decoders: r.decoders}
	if sign := proxySign(got); sign != "" && r.cfg.Proxied != nil && r.cfg.Proxied(u.Hostname()) {
		resp.close()
		return nil, failf(CauseUpstream, "upstream proxy answered %d itself (%s)", got.StatusCode, sign)
	}
	return resp, nil
}

// proxyFields appear in answers that a proxy made itself.
var proxyFields = []string{
	"Proxy-Authenticate", "X-Squid-Error", "X-Smokescreen-Error", "X-Crawlera-Error", "X-Luminati-Error", "X-Brd-Error", "X-Brd-Err-Code",
}

// proxyError is a Proxy-Status that names an error (RFC 9209 section 2.1.1).
var proxyError = regexp.MustCompile(`;\s*error\s*=`)

// proxySign returns the field that shows that a proxy wrote the answer and not the site, or "". Via
// does not show this. The site's CDN signs its answers too, so the fetcher checks only answers that
// came through an upstream proxy. Nobody can tell which of the two signed those.
func proxySign(resp *http.Response) string {
	switch {
	case resp.StatusCode == http.StatusProxyAuthRequired, resp.StatusCode == http.StatusNetworkAuthenticationRequired:
		return "its status"
	case proxyError.MatchString(strings.Join(resp.Header["Proxy-Status"], ",")):
		return "Proxy-Status"
	}
	for _, name := range proxyFields {
		if resp.Header[name] != nil {
			return name
		}
	}
	return ""
}

// close discards the rest of the answer. A connection with an unread body is closed with it.
func (resp *response) close() {
	resp.cancel()
	resp.Body.Close() //nolint:errcheck,gosec // the rest is not needed
}

// text reads and decodes the body, to at most limit bytes; more says that there were more. An
// incomplete body is a failure unless limit bytes of it came.
func (resp *response) text(limit int) (text []byte, more bool, fail *failure) {
	codings, named, err := parseCodings(resp.Header)
	if err != nil {
		return nil, false, failf(CauseEncoding, "%s", err)
	}
	if len(codings) == 0 {
		head, _ := resp.body.Peek(len(coding.ZstdMagic)) // reading the body returns the error again
		codings = undeclared(head)
	}
	if len(codings) == 0 {
		text, more, err = resp.read(limit)
		if err != nil && len(text) < limit {
			return nil, false, brokenBody(resp.ctx, err)
		}
		more = more || err != nil
	} else if text, more, fail = resp.coded(codings, limit); fail != nil {
		return nil, false, fail
	}
	if (named || len(codings) > 0) && !isText(text) {
		return nil, false, failf(CauseEncoding, "no text, by its Content-Encoding")
	}
	return text, more, nil
}

// coded is text for a body with codings.
func (resp *response) coded(codings []string, limit int) (text []byte, more bool, fail *failure) {
	// Read all coded data before decoding it: decoders hold megabytes, and a slow server must not hold
	// a decoder.
	data, _, readErr := resp.read(codedLimit(limit))
	if len(data) == 0 && readErr == nil && resp.framed() {
		return nil, false, nil // an empty file, which needs no coding
	}
	if !resp.decoders.TryAcquire(1) { // Acquire fails after a timeout, even if there is room
		if err := resp.decoders.Acquire(resp.ctx, 1); err != nil {
			return nil, false, brokenBody(resp.ctx, err)
		}
	}
	defer resp.decoders.Release(1)
	text, more, err := decode(data, codings, limit)
	switch {
	case more:
		return text, true, nil
	case readErr != nil:
		return nil, false, brokenBody(resp.ctx, readErr)
	case err != nil:
		return nil, false, failf(CauseEncoding, "%s", err)
	default:
		return text, false, nil
	}
}

// framed reports whether the protocol marks the end of the body. Otherwise only the end of the
// connection does.
func (resp *response) framed() bool {
	return resp.ContentLength >= 0 || len(resp.TransferEncoding) > 0 || resp.ProtoMajor >= 2
}

// read reads at most limit bytes of the body as sent; more says that there were more. Bytes that
// came before an error are returned with it.
func (resp *response) read(limit int) (data []byte, more bool, err error) {
	data, err = io.ReadAll(io.LimitReader(resp.body, int64(limit)+1))
	if len(data) > limit {
		return data[:limit:limit], true, nil
	}
	return data, false, err
}

// readFreshness reads what an answer says about its own reuse (RFC 9111 section 5.2.2):
// Cache-Control and Age.
//
// Of several lifetimes, max-age and s-maxage included, the shortest counts: Google's specification
// names max-age, RFC 9111 prefers s-maxage for a shared cache, and the shorter satisfies both. Age
// is subtracted, so that a copy from another cache does not start its lifetime again. no-cache and
// no-store both mean "ask again soon". Values that are not numbers are ignored. Expires is not
// read: Google's specification does not name it, and many applications send a date in the past with
// every answer.
func (out *Outcome) readFreshness(h http.Header) {
	for _, directive := range headerList(h, "Cache-Control") {
		name, value, _ := strings.Cut(directive, "=")
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "no-cache", "no-store":
			out.NoCache = true
		case "max-age", "s-maxage":
			age, ok := parseSeconds(strings.Trim(strings.TrimSpace(value), `"`))
			if ok && (!out.HasMaxAge || age < out.MaxAge) {
				out.MaxAge, out.HasMaxAge = age, true
			}
		}
	}
	if age, ok := parseSeconds(strings.TrimSpace(h.Get("Age"))); ok {
		out.MaxAge = max(out.MaxAge-age, 0)
	}
}

// headerList returns the elements of a comma-separated header field, trimmed and not empty. It does
// not know quoted strings: a comma inside one ends an element. That cannot make the fields read
// here last longer.
func headerList(h http.Header, key string) []string {
	list := strings.Split(strings.Join(h.Values(key), ","), ",")
	for i, element := range list {
		list[i] = strings.TrimSpace(element)
	}
	return slices.DeleteFunc(list, func(element string) bool { return element == "" })
}

// ParseRetryAfter reads a Retry-After field, seconds or date (RFC 9110 section 10.2.3), as a pause
// from now on. It returns zero for a field that is missing, unreadable, zero or in the past. A
// number of seconds that is too large returns about 68 years.
func ParseRetryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if pause, ok := parseSeconds(value); ok {
		return pause
	}
	date, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return max(date.Sub(now), 0)
}

// maxSeconds is the largest value of delta-seconds (RFC 9111 section 1.2.2).
const maxSeconds = 1 << 31

// parseSeconds reads the delta-seconds of RFC 9111 section 1.2.2: digits only. A number too large
// for its type is a very long time, not an error.
func parseSeconds(s string) (time.Duration, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n > maxSeconds {
		n = maxSeconds
	}
	return time.Duration(n) * time.Second, true
}
