package webbotauth

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// WellKnown is the path of a directory (section 8.1 of the draft).
const WellKnown = "/.well-known/http-message-signatures-directory"

// Valid is how long a signature may be used. It allows for the transfer to the site and for
// different clocks.
const Valid = time.Minute

// AgentForm is a form of the field Signature-Agent.
type AgentForm string

const (
	// Dictionary is the form of the draft: a member with the URL of the directory.
	Dictionary AgentForm = "dictionary"
	// String is the form of earlier drafts, which deployed verifiers still expect: the origin of the
	// directory. As in those drafts, the signature covers only the authority of the request.
	String AgentForm = "string"
)

// label names the signature within its message.
const label = "sig1"

// ErrNoKey means that no key signs now: all have ended, or have not begun yet.
var ErrNoKey = errors.New("no key signs at this time")

// Signer signs the requests of one agent. It is a value, safe for concurrent use if Keys is.
type Signer struct {
	// Keys returns the current keys.
	Keys func() Keys
	// Directory is the origin of the agent's directory, such as https://bot.example.com. See
	// [ParseDirectory].
	Directory string
}

// ParseDirectory checks the origin of a directory: https, a host, and nothing after it.
func ParseDirectory(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Opaque != "" ||
		u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" && u.Path != WellKnown ||
		strings.ContainsFunc(u.Host, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' }) {
		return "", errors.New("directory: want an origin such as https://bot.example.com")
	}
	return "https://" + strings.ToLower(u.Host), nil
}

// Sign signs a request that is about to leave over TLS, and replaces all signatures in its header.
// It returns the key's ID. After an error, the header has no signature. The request must be sent
// with the method, URL and Host that r has now.
func (s Signer) Sign(r *http.Request, form AgentForm, now time.Time) (keyID string, err error) {
	Strip(r.Header)
	if r.URL.Scheme != "https" {
		return "", errors.New("only https requests are signed")
	}
	key, ok := s.Keys().At(now)
	if !ok {
		return "", ErrNoKey
	}
	var m message
	agent := `"` + s.Directory + `"`
	if form == String {
		m.add(`"@authority"`, authority(r))
		m.add(`"signature-agent"`, agent)
	} else {
		agent = `"` + s.Directory + WellKnown + `"`
		m.add(`"@method"`, r.Method)
		m.add(`"@authority"`, authority(r))
		m.add(`"@path"`, path(r.URL))
		m.add(`"signature-agent";key="`+label+`"`, agent)
		agent = label + "=" + agent
	}
	// Without a nonce, two requests in the same second could have the same signature, and a site may
	// refuse a repeated one.
	input, signature := m.sign(key, label, validity(key, "web-bot-auth", now, Valid)+`;nonce="`+rand.Text()+`"`)
	r.Header["Signature-Agent"], r.Header["Signature-Input"], r.Header["Signature"] = []string{agent}, []string{input}, []string{signature}
	return key.ID, nil
}

// Strip removes all signatures from a header.
func Strip(h http.Header) {
	for _, name := range [...]string{"Signature", "Signature-Input", "Signature-Agent"} {
		delete(h, name)
	}
}

// authority is the component of RFC 9421 section 2.2.3.
func authority(r *http.Request) string {
	host := strings.ToLower(cmp.Or(r.Host, r.URL.Host))
	return strings.TrimSuffix(host, ":443")
}

// path is the component of RFC 9421 section 2.2.6.
func path(u *url.URL) string {
	if u.Opaque == "*" { // of OPTIONS: the target URI has no path
		return "/"
	}
	target, _, _ := strings.Cut(u.RequestURI(), "?")
	return target
}

// message collects the components of a message (RFC 9421 section 2), in the order in which they are
// signed. It has the serialized form: no name or value of this package contains a byte that needs
// an escape.
type message struct {
	list string // their names
	base strings.Builder
}

// add adds a component by its name and parameters.
func (m *message) add(component, value string) {
	if m.list != "" {
		m.list += " "
	}
	m.list += component
	for _, part := range [...]string{component, ": ", value, "\n"} {
		m.base.WriteString(part)
	}
}

// validity are the parameters that the draft demands (section 4.2), of a signature that is made
// now.
func validity(k SigningKey, tag string, now time.Time, valid time.Duration) string {
	return ";created=" + strconv.FormatInt(now.Unix(), 10) + ";expires=" + strconv.FormatInt(now.Add(valid).Unix(), 10) +
		`;keyid="` + k.ID + `";tag="` + tag + `"`
}

// sign returns the values of Signature-Input and Signature (RFC 9421 sections 2.5 and 3.1).
func (m *message) sign(k SigningKey, label, params string) (input, signature string) {
	list := "(" + m.list + ")" + params
	m.base.WriteString(`"@signature-params": ` + list)
	return label + "=" + list, label + "=:" + base64.StdEncoding.EncodeToString(ed25519.Sign(k.private, []byte(m.base.String()))) + ":"
}
