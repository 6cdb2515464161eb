// Package redact keeps passwords and keys out of logs.
//
// Caddy copies a request for its logs before any handler of a site runs. So [Fields.Withhold] takes
// the secrets out before Caddy's handler runs, and the gateway's handler puts them back with
// [PutBack].
package redact

import (
	"context"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// Mark replaces text that must not be logged.
const Mark = "REDACTED"

// defaults are the request and response fields that are not logged if the operator names none:
// fields in which common APIs accept and return keys. Caddy itself hides Authorization,
// Proxy-Authorization, Cookie and Set-Cookie.
var defaults = []string{
	"Api-Key", "Apikey", "X-Api-Key", "X-Apikey", "X-Api-Secret", "X-Api-Token", "X-Access-Key", "X-Access-Token", "X-Auth-Key", "X-Auth-Token",
	"X-Authorization", "X-Client-Secret", "X-Csrf-Token", "X-Secret", "X-Session-Token", "X-Token", "X-Xsrf-Token",
	"Ocp-Apim-Subscription-Key", "Private-Token", "X-Amz-Security-Token", "X-Functions-Key", "X-Goog-Api-Key", "X-Rapidapi-Key",
	"X-Shopify-Access-Token", "X-Subscription-Token", "X-Vault-Token",
}

// Fields are the fields whose values are not logged, by name in canonical form.
type Fields map[string]struct{}

// New returns the fields with the given names, or the defaults if names is empty; "off" alone
// stands for no field.
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
			return nil, fmt.Errorf("%q is not a field name", name)
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		if fields.hides(name) {
			return nil, fmt.Errorf("%s is given twice", name)
		}
		fields[name] = struct{}{}
	}
	return fields, nil
}

// hides reports whether the values of a field must not be logged. Caddy drops fields with _ or a
// dot in their names, but logs them.
func (f Fields) hides(name string) bool {
	if strings.ContainsAny(name, "_.") {
		name = textproto.CanonicalMIMEHeaderKey(hyphens.Replace(name))
	}
	_, ok := f[name]
	return ok
}

var hyphens = strings.NewReplacer("_", "-", ".", "-")

// shown returns the values that may be logged in place of a field's, or nil for all of them.
func (f Fields) shown(name string, values []string) []string {
	if f.hides(name) {
		return []string{Mark}
	}
	var shown []string
	for i, v := range values {
		masked := v
		if name == "Referer" || name == "Location" {
			masked = Target(http.MethodGet, v)
		}
		if masked = URLs(masked); masked != v {
			if shown == nil {
				shown = slices.Clone(values)
			}
			shown[i] = masked
		}
	}
	return shown
}

// withheldKey is the context key of a request's withheld.
type withheldKey struct{}

// withheld holds the parts that were taken out of a request.
type withheld struct {
	fields        []withheldField
	target, shown string // the target as it was, and as it is logged
	url           *url.URL
	userinfo      bool // a user name or password was in the authority of the target
}

type withheldField struct {
	name       string
	was, shown []string
}

// Withhold takes out of a request the parts that must not be logged; [PutBack] puts them back. It
// takes fields from proxied requests, and from those whose target holds a user name or password:
// into other requests nothing would put them back.
func (f Fields) Withhold(r *http.Request, proxied bool) {
	w := withheld{target: r.RequestURI, url: r.URL}
	w.shown, w.userinfo = hideUserinfo(r.Method, r.RequestURI)
	if proxied || w.userinfo {
		w.shown = URLs(w.shown)
	}
	if w.shown != w.target {
		retarget(r, w.shown)
	}
	if at := strings.LastIndexByte(r.Host, '@'); at >= 0 {
		w.userinfo, r.Host = true, r.Host[at+1:]
	}
	if proxied || w.userinfo {
		for name, values := range r.Header {
			if shown := f.shown(name, values); shown != nil {
				w.fields = append(w.fields, withheldField{name, values, shown})
				r.Header[name] = shown
			}
		}
	}
	if w.userinfo || w.fields != nil || w.shown != w.target {
		// In place, because net/http looks at the request too.
		*r = *r.WithContext(context.WithValue(r.Context(), withheldKey{}, w))
	}
}

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

// PutBack restores a request's fields, path and query, if no handler has changed them since. It
// reports whether the authority of the request's target held a user name or password.
func PutBack(r *http.Request) (userinfo bool) {
	w, ok := r.Context().Value(withheldKey{}).(withheld)
	if !ok {
		return false
	}
	for _, f := range w.fields {
		if slices.Equal(r.Header[f.name], f.shown) {
			r.Header[f.name] = f.was
		}
	}
	if w.userinfo || w.shown == w.target { // with userinfo, the target is refused and only logged
		return w.userinfo
	}
	// A request inside a tunnel now has the scheme and host before its target.
	if front, ok := strings.CutSuffix(r.RequestURI, w.shown); ok {
		u := *w.url
		u.Scheme, u.Host = r.URL.Scheme, r.URL.Host
		r.RequestURI, r.URL = front+w.target, &u
	}
	return false
}

// HideSent takes out of a response header that has been sent the values that must not be logged.
// Trailers are still to come.
func (f Fields) HideSent(h http.Header) {
	for name, values := range h {
		if shown := f.shown(name, values); shown != nil && !httpguts.HeaderValuesContainsToken(h["Trailer"], name) {
			h[name] = shown
		}
	}
}

// Target returns the target of a request line, or a URL, with a mark in place of a user name and
// password. It also recognizes spellings that clients use by mistake: //u:p@h/, http:/u:p@h/,
// http:u:p@h/, u:p@h/, and \ for /.
func Target(method, target string) string {
	shown, _ := hideUserinfo(method, target)
	return shown
}

// schemePattern is the scheme that a URL begins with, its colon included (RFC 3986 section 3.1).
var schemePattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*:`)

// hideUserinfo is like [Target], and also reports whether it has hidden anything.
func hideUserinfo(method, target string) (shown string, found bool) {
	if !strings.Contains(target, "@") {
		return target, false
	}
	scheme := ""
	if method != http.MethodConnect || strings.Contains(target, "://") {
		scheme = schemePattern.FindString(target)
	}
	rest := strings.TrimLeft(target[len(scheme):], `/\`)
	slashes := target[len(scheme) : len(target)-len(rest)]
	authority := rest
	// All other spellings are refused in any case, so everything before the @ is hidden.
	if scheme == "" && method != http.MethodConnect || slashes == "//" {
		if end := strings.IndexAny(rest, `/\?#`); end >= 0 {
			authority = rest[:end]
		}
	}
	at := strings.LastIndexByte(authority, '@')
	if at <= 0 {
		return target, false
	}
	if scheme == "" && slashes != "" && (len(slashes) == 1 || !strings.Contains(authority[:at], ":")) {
		return target, false // a path
	}
	return scheme + slashes + Mark + rest[at:], true
}

// The beginning and the end of an authority in a text, plain or percent-encoded.
var (
	authorityStart = regexp.MustCompile(`(?i)(?::|%3A)(?:/|%2F)(?:/|%2F)`)
	authorityEnd   = regexp.MustCompile(`(?i)[/\\?#&"<> \t]|%(?:2F|5C|3F|23|26|22|3C|3E|20|09)`)
)

// URLs returns text with a mark in place of the user name and password of each URL in it, even if
// they are percent-encoded, as in a query.
func URLs(text string) string {
	if !strings.Contains(text, "@") && !strings.Contains(text, "%40") {
		return text
	}
	var masked strings.Builder
	for {
		start := authorityStart.FindStringIndex(text)
		if start == nil {
			return masked.String() + text
		}
		masked.WriteString(text[:start[1]])
		text = text[start[1]:]
		authority := text
		if end := authorityEnd.FindStringIndex(text); end != nil {
			authority = text[:end[0]]
		}
		at := max(strings.LastIndexByte(authority, '@'), strings.LastIndex(authority, "%40"))
		if at > 0 {
			masked.WriteString(Mark)
			text = text[at:] // the authority may end with the colon of another "://"
		}
	}
}
