// Package redact keeps passwords and keys out of logs.
//
// Caddy copies a request for its logs before any handler of a site runs. So what must not be logged is taken out in front
// of Caddy's handler ([Fields.Withhold]), and put back by the gateway's ([PutBack]).
package redact

import (
	"context"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Mark stands in logs for what must not be there.
const Mark = "REDACTED"

// defaults are the request and response fields that are not logged where the operator names none: those by which
// common APIs take and give keys. Authorization, Proxy-Authorization, Cookie and Set-Cookie are Caddy's own business.
var defaults = []string{
	"Api-Key", "Apikey", "X-Api-Key", "X-Apikey", "X-Api-Secret", "X-Api-Token", "X-Access-Key", "X-Access-Token", "X-Auth-Key", "X-Auth-Token",
	"X-Authorization", "X-Client-Secret", "X-Csrf-Token", "X-Secret", "X-Session-Token", "X-Token", "X-Xsrf-Token",
	"Ocp-Apim-Subscription-Key", "Private-Token", "X-Amz-Security-Token", "X-Functions-Key", "X-Goog-Api-Key", "X-Rapidapi-Key",
	"X-Shopify-Access-Token", "X-Subscription-Token", "X-Vault-Token",
}

// Fields are the fields whose values are not logged, by their names in canonical form.
type Fields map[string]struct{}

// New returns the fields of the names given, the defaults for none; "off" alone stands for no field.
func New(names []string) (Fields, error) {
	if len(names) == 0 {
		names = defaults
	}
	fields := make(Fields, len(names))
	if slices.Equal(names, []string{"off"}) {
		return fields, nil
	}
	for _, name := range names {
		if !httpguts.ValidHeaderFieldName(name) || name == "off" {
			return nil, fmt.Errorf("%q is no name of a field", name)
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		if fields.hides(name) {
			return nil, fmt.Errorf("%s is given twice", name)
		}
		fields[name] = struct{}{}
	}
	return fields, nil
}

// hides reports whether the values of a field are not to be logged. Caddy drops names with _ or a dot, but logs them.
func (f Fields) hides(name string) bool {
	if strings.ContainsAny(name, "_.") {
		name = textproto.CanonicalMIMEHeaderKey(hyphens.Replace(name))
	}
	_, ok := f[name]
	return ok
}

var hyphens = strings.NewReplacer("_", "-", ".", "-")

// shown returns what may be logged of a field in its place, nil for all of it.
func (f Fields) shown(name string, values []string) []string {
	if f.hides(name) {
		return []string{Mark}
	}
	var shown []string
	for i, v := range values {
		masked := v
		if name == "Referer" || name == "Location" {
			if start, end, ok := userinfo(http.MethodGet, v); ok {
				masked = v[:start] + Mark + v[end:]
			}
		}
		if masked = maskURLs(masked); masked != v {
			if shown == nil {
				shown = slices.Clone(values)
			}
			shown[i] = masked
		}
	}
	return shown
}

// withheldKey is the key of a request's withheld in its context.
type withheldKey struct{}

// withheld is what was taken out of a request.
type withheld struct {
	fields   []withheldField
	target   withheldTarget
	userinfo bool // a user name or password was in the authority of the target
}

// withheldTarget is a target of which a part was taken out; the zero value stands for one that is as it was.
type withheldTarget struct {
	was, shown string
	url        *url.URL
}

type withheldField struct {
	name       string
	was, shown []string
}

// Withhold takes out of a request what must not be logged, for [PutBack] to find. Fields are taken from proxied requests,
// and from those whose target holds a user name or password: of others nobody would put them back.
func (f Fields) Withhold(r *http.Request, proxied bool) {
	var fields []withheldField
	var target withheldTarget
	found, shown := false, r.RequestURI
	if start, end, ok := userinfo(r.Method, shown); ok {
		found, shown = true, shown[:start]+Mark+shown[end:]
	}
	if proxied || found {
		shown = maskURLs(shown)
	}
	if shown != r.RequestURI {
		target = withheldTarget{r.RequestURI, shown, r.URL}
		retarget(r, shown)
	}
	if at := strings.LastIndexByte(r.Host, '@'); at >= 0 {
		found, r.Host = true, r.Host[at+1:]
	}
	if proxied || found {
		for name, values := range r.Header {
			if shown := f.shown(name, values); shown != nil {
				fields = append(fields, withheldField{name, values, shown})
				r.Header[name] = shown
			}
		}
	}
	if found || fields != nil || target.was != "" {
		w := &withheld{fields, target, found}
		*r = *r.WithContext(context.WithValue(r.Context(), withheldKey{}, w)) // in place: net/http looks at it too
	}
}

// retarget gives a request another target.
func retarget(r *http.Request, target string) {
	r.RequestURI = target
	var err error
	if r.Method == http.MethodConnect {
		if r.URL, err = url.Parse("http://" + target); err == nil {
			r.URL.Scheme = ""
		}
	} else {
		r.URL, err = url.ParseRequestURI(target)
	}
	if err != nil {
		r.URL = &url.URL{Opaque: target}
	}
}

// PutBack gives a request its fields and its path and query again, if no handler has changed them since, and reports whether
// the authority of its target held a user name or password.
func PutBack(r *http.Request) (userinfo bool) {
	w, ok := r.Context().Value(withheldKey{}).(*withheld)
	if !ok {
		return false
	}
	for _, f := range w.fields {
		if slices.Equal(r.Header[f.name], f.shown) {
			r.Header[f.name] = f.was
		}
	}
	if !w.userinfo { // else it is refused, and its target shown in logs only
		w.target.putBack(r)
	}
	return w.userinfo
}

// putBack gives a request its path and query again. A request inside a tunnel has got the scheme and host in front of them.
func (t *withheldTarget) putBack(r *http.Request) {
	if t.was == "" {
		return
	}
	if front, ok := strings.CutSuffix(r.RequestURI, t.shown); ok {
		u := *t.url
		u.Scheme, u.Host = r.URL.Scheme, r.URL.Host
		r.RequestURI, r.URL = front+t.was, &u
	}
}

// HideSent takes out of a response header that has been sent what must not be logged. Trailers are still to come.
func (f Fields) HideSent(h http.Header) {
	for name, values := range h {
		if shown := f.shown(name, values); shown != nil && !httpguts.HeaderValuesContainsToken(h["Trailer"], name) {
			h[name] = shown
		}
	}
}

// userinfo finds what may be a user name and password in the target of a request line or in a URL: target[start:end]. It
// knows the spellings that clients come to by mistake as well: //u:p@h/, http:/u:p@h/, http:u:p@h/, u:p@h/, and \ for /.
func userinfo(method, target string) (start, end int, found bool) {
	scheme := 0
	if method != http.MethodConnect || strings.Contains(target, "://") {
		scheme = schemeEnd(target)
	}
	rest := target[scheme:]
	slashes := len(rest) - len(strings.TrimLeft(rest, `/\`))
	start, end = scheme+slashes, len(target)
	regular := scheme > 0 && slashes == 2 && strings.HasPrefix(rest, "//")
	if regular || scheme == 0 { // else all that looks like it: such a target is refused in any case
		if i := strings.IndexAny(target[start:], `/\?#`); i >= 0 {
			end = start + i
		}
	}
	at := strings.LastIndexByte(target[start:end], '@')
	if at <= 0 {
		return 0, 0, false
	}
	end = start + at
	if scheme == 0 && method != http.MethodConnect && (slashes < 2 || !strings.Contains(target[start:end], ":")) {
		return 0, 0, false // a path
	}
	return start, end, true
}

// schemeEnd returns the length of the scheme that a URL begins with, its colon included (RFC 3986 section 3.1); 0 for none.
func schemeEnd(s string) int {
	for i, c := range []byte(s) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		switch {
		case letter:
		case i == 0:
			return 0
		case c == ':':
			return i + 1
		case c != '+' && c != '-' && c != '.' && (c < '0' || c > '9'):
			return 0
		}
	}
	return 0
}

// maskURLs returns text with a mark for the user name and password of each URL in it, also where these are percent-encoded,
// as in a query.
func maskURLs(text string) string {
	if !strings.Contains(text, "@") && !strings.Contains(text, "%40") {
		return text
	}
	var masked strings.Builder
	kept := 0 // how much of the text masked has
	for at := 0; at < len(text); {
		start := authority(text, at)
		if start < 0 {
			break
		}
		end := -1
		for i := start; i < len(text); {
			c, n := decoded(text[i:])
			if strings.IndexByte("/\\?#&\"<> \t", c) >= 0 {
				break
			}
			if c == '@' {
				end = i
			}
			i += n
		}
		if end > start && text[start:end] != Mark {
			masked.WriteString(text[kept:start] + Mark)
			kept = end
		}
		at = max(start, end) // the authority may end with the colon of another "://"
	}
	masked.WriteString(text[kept:])
	return masked.String()
}

// authority returns where behind the next "://" an authority may begin; -1 for nowhere.
func authority(text string, from int) int {
	const before = "://"
	for seen := 0; from < len(text); {
		c, n := decoded(text[from:])
		from += n
		switch c {
		case before[seen]:
			seen++
		case ':':
			seen = 1
		default:
			seen = 0
		}
		if seen == len(before) {
			return from
		}
	}
	return -1
}

// decoded returns the first octet of a text that is not empty, and its length there: 3 if it is percent-encoded.
func decoded(text string) (c byte, length int) {
	if text[0] == '%' && len(text) >= 3 {
		if n, err := strconv.ParseUint(text[1:3], 16, 8); err == nil {
			return byte(n), 3
		}
	}
	return text[0], 1
}
