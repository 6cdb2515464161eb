package webbotauth

import (
	"crypto/ed25519"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
)

// rfcKey returns the key of RFC 9421 appendix B.1.4, which ParseKeys refuses.
func rfcKey(tb testing.TB) SigningKey {
	tb.Helper()
	seed, err := base64.RawURLEncoding.DecodeString("n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU")
	if err != nil {
		tb.Fatal(err)
	}
	return newKey(ed25519.NewKeyFromSeed(seed), time.Time{}, time.Time{})
}

// TestVectors checks RFC 9421 appendix B.2.6 and the Ed25519 test vectors of
// draft-ietf-webbotauth-httpsig-protocol-01, byte for byte.
func TestVectors(t *testing.T) {
	t.Parallel()
	type param struct {
		name  string
		value any
	}
	type component struct {
		name, value string
		params      []param
	}
	parameters := func(list []param) *httpsfv.Params {
		all := httpsfv.NewParams()
		for _, p := range list {
			all.Add(p.name, p.value)
		}
		return all
	}
	draft := func(expires int64, nonce string) []param {
		return []param{
			{"created", int64(1735689600)}, {"keyid", testKey}, {"alg", "ed25519"}, {"expires", expires}, {"nonce", nonce}, {"tag", "web-bot-auth"},
		}
	}
	for _, v := range []struct {
		what, label, input, signature string
		components                    []component
		params                        []param
	}{
		{
			"RFC 9421 B.2.6", "sig-b26",
			`sig-b26=("date" "@method" "@path" "@authority" "content-type" "content-length");created=1618884473;keyid="test-key-ed25519"`,
			"sig-b26=:wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==:",
			[]component{
				{"date", "Tue, 20 Apr 2021 02:07:55 GMT", nil},
				{"@method", "POST", nil},
				{"@path", "/foo", nil},
				{"@authority", "example.com", nil},
				{"content-type", "application/json", nil},
				{"content-length", "18", nil},
			},
			[]param{{"created", int64(1618884473)}, {"keyid", "test-key-ed25519"}},
		},
		{
			"dictionary", "sig2",
			`sig2=("@authority" "signature-agent";key="agent2");created=1735689600;keyid="` + testKey + `";alg="ed25519";expires=4889289600;` +
				`nonce="n9p433xm+NJ3ph3upfBIGmsuwHw387YV7Q/F+6BSpGCVjYCqQw6rznNA8PVVLySrAWsv0hQtFioQb6E1YsauiA==";tag="web-bot-auth"`,
			"sig2=:RdNFx5Bj6au3YgAMQL/RzmUlZE8QZLIaXGRpw985hWnwPfMxT228NMk6ehRS1PSl4e8PhbNZACSanGdhEwYCCg==:",
			[]component{{"@authority", "example.com", nil}, {"signature-agent", `"https://signature-agent.test"`, []param{{"key", "agent2"}}}},
			draft(4889289600, "n9p433xm+NJ3ph3upfBIGmsuwHw387YV7Q/F+6BSpGCVjYCqQw6rznNA8PVVLySrAWsv0hQtFioQb6E1YsauiA=="),
		},
		{
			"string", "sig2",
			`sig2=("@authority" "signature-agent");created=1735689600;keyid="` + testKey + `";alg="ed25519";expires=1735693200;` +
				`nonce="e8N7S2MFd/qrd6T2R3tdfAuuANngKI7LFtKYI/vowzk4lAZYadIX6wW25MwG7DCT9RUKAJ0qVkU0mEeLElW1qg==";tag="web-bot-auth"`,
			"sig2=:jdq0SqOwHdyHr9+r5jw3iYZH6aNGKijYp/EstF4RQTQdi5N5YYKrD+mCT1HA1nZDsi6nJKuHxUi/5Syp3rLWBA==:",
			[]component{{"@authority", "example.com", nil}, {"signature-agent", `"https://signature-agent.test"`, nil}},
			draft(1735693200, "e8N7S2MFd/qrd6T2R3tdfAuuANngKI7LFtKYI/vowzk4lAZYadIX6wW25MwG7DCT9RUKAJ0qVkU0mEeLElW1qg=="),
		},
		{
			"directory", "binding",
			`binding=("@authority";req "content-digest");created=1735689600;expires=4889289600;keyid="` + testKey + `";tag="http-message-signatures-directory"`,
			"binding=:l6P8R67tm3kujAxbHWio7ll01qrEZ0dKD/WWlGhNYEmTnFZM8Wt0VQ9zqGfvo7T/UMkBxsigzChM1Gpz7gOVBg==:",
			[]component{
				{"@authority", "signature-agent.test", []param{{"req", true}}},
				{"content-digest", "sha-256=:CADMT2aBdV/rqQr/NIru64ERQkCobVvllA4V0fLFDu0=:", nil},
			},
			[]param{{"created", int64(1735689600)}, {"expires", int64(4889289600)}, {"keyid", testKey}, {"tag", "http-message-signatures-directory"}},
		},
	} {
		var m message
		for _, c := range v.components {
			m.add(marshal(t, httpsfv.Item{Value: c.name, Params: parameters(c.params)}), c.value)
		}
		params := strings.TrimPrefix(marshal(t, httpsfv.InnerList{Params: parameters(v.params)}), "()")
		if input, signature := m.sign(rfcKey(t), v.label, params); input != v.input || signature != v.signature {
			t.Errorf("%s:\n%s\n%s\nwant\n%s\n%s", v.what, input, signature, v.input, v.signature)
		}
	}
}

// marshal serializes a structured field with the library that this package does not use.
func marshal(t *testing.T, v httpsfv.StructuredFieldValue) string {
	t.Helper()
	text, err := httpsfv.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// verified recomputes the base of a request's signature from its header, and verifies it.
func verified(t *testing.T, r *http.Request, k SigningKey) bool {
	t.Helper()
	inputs, err := httpsfv.UnmarshalDictionary(r.Header["Signature-Input"])
	if err != nil {
		t.Fatal(err)
	}
	agents, err := httpsfv.UnmarshalDictionary(r.Header["Signature-Agent"])
	values := map[string]string{
		`"@method"`: r.Method, `"@authority"`: r.Host, `"@path"`: r.URL.EscapedPath(), `"signature-agent"`: r.Header.Get("Signature-Agent"),
	}
	if err == nil {
		if member, ok := agents.Get(label); ok {
			values[`"signature-agent";key="sig1"`] = marshal(t, member)
		}
	}
	member, _ := inputs.Get(label)
	list, ok := member.(httpsfv.InnerList)
	if !ok {
		t.Fatalf("unexpected Signature-Input %q", r.Header["Signature-Input"])
	}
	var base strings.Builder
	for _, item := range list.Items {
		base.WriteString(marshal(t, item) + ": " + values[marshal(t, item)] + "\n")
	}
	base.WriteString(`"@signature-params": ` + marshal(t, list))
	signatures, err := httpsfv.UnmarshalDictionary(r.Header["Signature"])
	if err != nil {
		t.Fatal(err)
	}
	member, _ = signatures.Get(label)
	item, _ := member.(httpsfv.Item)
	signature, _ := item.Value.([]byte)
	public, _ := k.private.Public().(ed25519.PublicKey)
	return ed25519.Verify(public, []byte(base.String()), signature)
}

// TestSign checks that in both forms a signature verifies for this request only, and replaces the
// client's.
func TestSign(t *testing.T) {
	t.Parallel()
	key, err := Generate(time.Time{}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	s := Signer{Keys: func() Keys { return Keys{key} }, Directory: "https://bot.example.com"}
	now := time.Unix(1_800_000_000, 999)
	for form, agent := range map[AgentForm]string{
		Dictionary: `sig1="https://bot.example.com/.well-known/http-message-signatures-directory"`,
		String:     `"https://bot.example.com"`,
	} {
		r := httptest.NewRequest(http.MethodGet, "https://site.example/a%2Fb?q=1", nil)
		r.Header["Signature"] = []string{"client=:AA==:", "other=:AA==:"}
		if id, err := s.Sign(r, form, now); err != nil || id != key.ID {
			t.Fatal(id, err)
		}
		if got := r.Header["Signature-Agent"]; len(got) != 1 || got[0] != agent {
			t.Errorf("%s: got Signature-Agent %q, want only the agent's", form, got)
		}
		if len(r.Header["Signature"]) != 1 || !verified(t, r, key) {
			t.Errorf("%s: the signature does not verify; header %v", form, r.Header)
		}
		if input := r.Header.Get("Signature-Input"); !strings.Contains(input, ";created=1800000000;expires=1800000060;keyid=") {
			t.Errorf("%s: Signature-Input %q has other parameters", form, input)
		}
		first := r.Header.Get("Signature")
		if _, err := s.Sign(r, form, now); err != nil || r.Header.Get("Signature") == first {
			t.Errorf("%s: two requests have the same signature (error %v)", form, err)
		}
		for _, change := range []struct {
			what  string
			forms string // those that cover it
			do    func(*http.Request)
		}{
			{"authority", "dictionary string", func(r *http.Request) { r.Host = "other.example" }},
			{"method", "dictionary", func(r *http.Request) { r.Method = http.MethodPost }},
			{"path", "dictionary", func(r *http.Request) { r.URL.Path, r.URL.RawPath = "/b", "" }},
			{"agent", "dictionary string", func(r *http.Request) {
				r.Header.Set("Signature-Agent", strings.Replace(agent, "bot", "other", 1))
			}},
		} {
			other := r.Clone(t.Context())
			if change.do(other); strings.Contains(change.forms, string(form)) && verified(t, other, key) {
				t.Errorf("%s: the signature verifies for another %s", form, change.what)
			}
		}
	}
}

// TestUnsigned checks that without TLS or without a key, no part of a signature is left.
func TestUnsigned(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	old, err := Generate(time.Time{}, now)
	if err != nil {
		t.Fatal(err)
	}
	s := Signer{Keys: func() Keys { return Keys{old} }, Directory: "https://bot.example.com"}
	for _, target := range []string{"http://site.example/", "https://site.example/"} {
		r := httptest.NewRequest(http.MethodGet, target, nil)
		r.Header.Set("Signature-Input", "client=()")
		if id, err := s.Sign(r, Dictionary, now); err == nil || id != "" || len(r.Header) > 0 {
			t.Errorf("Sign of %s = %q, %v with header %v, want an error and no header", target, id, err, r.Header)
		}
	}
}

// TestAuthority checks RFC 9421 section 2.2.3: lower case, without the default port of the scheme.
func TestAuthority(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"Site.Example": "site.example", "site.example:443": "site.example", "site.example:8443": "site.example:8443", "[::1]:443": "[::1]",
	} {
		r := httptest.NewRequest(http.MethodGet, "https://x/", nil)
		if r.Host = host; authority(r) != want {
			t.Errorf("%s: %s, want %s", host, authority(r), want)
		}
	}
}

// TestPath checks RFC 9421 section 2.2.6: the path as it is sent, and a slash for an empty path.
func TestPath(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]string{"https://site.example": "/", "https://site.example/a%2Fb?q=1": "/a%2Fb", "https://site.example/?": "/"} {
		if got := path(httptest.NewRequest(http.MethodGet, target, nil).URL); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
	if got := path(&url.URL{Scheme: "https", Host: "site.example", Opaque: "*"}); got != "/" {
		t.Errorf("of the whole server: %s, want /", got)
	}
}

func TestParseDirectory(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://bot.example.com": "https://bot.example.com", "https://Bot.example.com:8443/": "https://bot.example.com:8443",
		"https://bot.example.com" + WellKnown: "https://bot.example.com",
		"http://bot.example.com":              "", "https://": "", "bot.example.com": "", "https://u@bot.example.com": "", "https://bot.example.com/x": "",
		"https://bot.example.com?x": "", "https://bot.example.com#x": "", "https://b\"t.example.com": "", "https://böt.example.com": "",
		"https://[fe80::1%25%20]": "",
	} {
		if got, err := ParseDirectory(text); got != want || (err == nil) != (want != "") {
			t.Errorf("ParseDirectory(%s) = %q, %v", text, got, err)
		}
	}
}

func BenchmarkSign(b *testing.B) {
	s := Signer{Keys: func() Keys { return Keys{rfcKey(b)} }, Directory: "https://bot.example.com"}
	keys := s.Keys()
	s.Keys = func() Keys { return keys }
	r := httptest.NewRequest(http.MethodGet, "https://site.example/a/b?q=1", nil)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := s.Sign(r, Dictionary, time.Now()); err != nil {
			b.Fatal(err)
		}
	}
}
