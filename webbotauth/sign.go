package webbotauth

import (
	"cmp"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/dunglas/httpsfv"
)

// WellKnown is the path of a directory (section 8.1 of the draft).
const WellKnown = "/.well-known/http-message-signatures-directory"

// Valid is how long a signature may be used. It covers the way to the site and clocks that differ.
const Valid = time.Minute

// AgentForm is a form of the field Signature-Agent.
type AgentForm string

const (
	// Dictionary is the form of the draft: a member with the URL of the directory.
	Dictionary AgentForm = "dictionary"
	// String is the form of earlier drafts, which deployed verifiers still want: the origin of the
	// directory. Such a signature covers the authority and nothing else of the request, as theirs do.
	String AgentForm = "string"
)

// label names the signature among those of a message.
const label = "sig1"

// ErrNoKey means that no key signs now: all have ended, or have yet to begin.
var ErrNoKey = errors.New("no key signs at this time")

// Signer signs the requests of one agent. It is a value, safe for concurrent use if Keys is.
type Signer struct {
	// Keys returns the keys as they are now.
	Keys func() Keys
	// Directory is the origin of the agent's directory, such as https://bot.example.com. See
	// [ParseDirectory].
	Directory string
}

// ParseDirectory checks the origin of a directory: https, a host, and nothing after it.
func ParseDirectory(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Opaque != "" ||
		u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" && u.Path != WellKnown {
		return "", errors.New("directory: want an origin such as https://bot.example.com")
	}
	return "https://" + strings.ToLower(u.Host), nil
}

// Sign puts a signature into the header of a request that is about to leave over TLS, in the place
// of all signatures that it has. It returns the key's ID. On an error the header has no signature.
// r's method, URL and Host must be what is sent.
func (s Signer) Sign(r *http.Request, form AgentForm, now time.Time) (keyID string, err error) {
	Strip(r.Header)
	if r.URL.Scheme != "https" {
		return "", errors.New("only requests of https are signed")
	}
	key, ok := s.Keys().At(now)
	if !ok {
		return "", ErrNoKey
	}
	var m message
	field := httpsfv.NewItem(s.Directory)
	if form == String {
		m.add("@authority", authority(r))
		m.add("signature-agent", marshal(field))
		r.Header["Signature-Agent"] = []string{marshal(field)}
	} else {
		field.Value = s.Directory + WellKnown
		m.add("@method", r.Method)
		m.add("@authority", authority(r))
		m.add("@path", path(r.URL))
		m.add("signature-agent", marshal(field), param{"key", label})
		agent := httpsfv.NewDictionary()
		agent.Add(label, field)
		r.Header["Signature-Agent"] = []string{marshal(agent)}
	}
	params := validity(key, "web-bot-auth", now, Valid)
	// Otherwise two requests of a second could have one signature, and a site may refuse to see one twice.
	params = append(params, param{"nonce", rand.Text()})
	input, signature := m.sign(key, label, params)
	r.Header["Signature-Input"], r.Header["Signature"] = []string{input}, []string{signature}
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
	target, _, _ := strings.Cut(u.RequestURI(), "?")
	return target
}

type param struct {
	name  string
	value any
}

// message collects the components of a message (RFC 9421 section 2), in the order in which they are
// signed.
type message struct {
	list httpsfv.InnerList
	base strings.Builder
}

func (m *message) add(name, value string, params ...param) {
	item := httpsfv.NewItem(name)
	for _, p := range params {
		item.Params.Add(p.name, p.value)
	}
	m.list.Items = append(m.list.Items, item)
	fmt.Fprintf(&m.base, "%s: %s\n", marshal(item), value)
}

// validity are the parameters that the draft demands (section 4.2), of a signature that is made now.
func validity(k SigningKey, tag string, now time.Time, valid time.Duration) []param {
	return []param{{"created", now.Unix()}, {"expires", now.Add(valid).Unix()}, {"keyid", k.ID}, {"tag", tag}}
}

// sign returns the values of Signature-Input and Signature (RFC 9421 sections 2.5 and 3.1).
func (m *message) sign(k SigningKey, label string, params []param) (input, signature string) {
	m.list.Params = httpsfv.NewParams()
	for _, p := range params {
		m.list.Params.Add(p.name, p.value)
	}
	inputs, signatures := httpsfv.NewDictionary(), httpsfv.NewDictionary()
	inputs.Add(label, m.list)
	input = marshal(inputs)
	base := m.base.String() + `"@signature-params": ` + strings.TrimPrefix(input, label+"=")
	signatures.Add(label, httpsfv.NewItem(ed25519.Sign(k.private, []byte(base))))
	return input, marshal(signatures)
}

// marshal serializes a value of this package's making, which is always serializable.
func marshal(v httpsfv.StructuredFieldValue) string {
	text, err := httpsfv.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("webbotauth: %v", err))
	}
	return text
}
