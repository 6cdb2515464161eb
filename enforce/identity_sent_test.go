package enforce

import (
	"net/http/httptest"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/webbotauth"
)

// TestSignature checks that only https is signed, by a key that is valid now, in the form that the
// host wants. A request that cannot be signed does not keep the client's signature either.
func TestSignature(t *testing.T) {
	t.Parallel()
	at := time.Unix(1_800_000_000, 0)
	key, err := webbotauth.Generate(at, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	sign := &Signing{Keys: "file", Directory: "https://bot.example", StringHosts: []string{"*.cdn.example"}}
	id, _, err := NewIdentifier(IdentifierConfig{Agents: []Agent{
		{Name: "signer", UserAgents: []string{"SignBot/*"}, SendFrom: "a@b.example", Sign: sign}, {Name: "plain"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	signer := id.Agents()[0]
	signer.Signer.Keys = func() webbotauth.Keys { return webbotauth.Keys{key} }
	for _, c := range []struct {
		what, url string
		agent     *Agent
		at        time.Time
		want      Signature
	}{
		{"https", "https://example.com/a", signer, at, Signature{Key: key.ID, Form: webbotauth.Dictionary}},
		{"a host of string", "https://a.cdn.example/a", signer, at, Signature{Key: key.ID, Form: webbotauth.String}},
		{"http", "http://example.com/a", signer, at, Signature{Unsigned: UnsignedScheme}},
		{"before the key signs", "https://example.com/a", signer, at.Add(-time.Second), Signature{Unsigned: UnsignedNoKey}},
		{"an agent that signs nothing", "https://example.com/a", id.Agents()[1], at, Signature{}},
		{"no agent", "https://example.com/a", nil, at, Signature{}},
	} {
		r := httptest.NewRequest("GET", c.url, nil)
		r.Header.Set("Signature", "client=:AA==:")
		o, err := origin.FromURL(r.URL)
		if err != nil {
			t.Fatal(err)
		}
		got := c.agent.Signature(r, o, c.at)
		if sent := r.Header.Get("Signature"); got != c.want || (got.Key != "") != (len(sent) > 60) || c.agent.Signs() && sent == "client=:AA==:" {
			t.Errorf("%s: %+v, sent %q, want %+v", c.what, got, sent, c.want)
		}
	}
	if signer.Sends().Get("From") != "a@b.example" || len(signer.Sends()) != 1 || (*Agent)(nil).Sends() != nil {
		t.Error(signer.Sends())
	}
	named, _, err := NewIdentifier(IdentifierConfig{Agents: []Agent{
		{Name: "acme", Tokens: []string{"AcmeBot"}, UserAgents: []string{"NewsBot"}, SendUserAgent: "Mozilla/5.0 (compatible; AcmeBot/2.0; +https://bot.example)"},
	}})
	if err != nil || named.AskedAs("AcmeBot") == nil || named.AskedAs("NewsBot") != nil {
		t.Errorf("AskedAs returns an agent for another name: %v", err)
	}
	for token, want := range map[string]*Agent{"SignBot": signer, "signer": nil, "plain": id.Agents()[1], "": nil} {
		if got := id.AskedAs(token); got != want {
			t.Errorf("AskedAs(%q) = %v, want %v", token, got, want)
		}
	}
}

// TestDirectoryOrigin checks that a directory is kept in the form that its own site compares.
func TestDirectoryOrigin(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://bot.example": "https://bot.example", "https://bot.example:443": "https://bot.example", "https://Bot.example.:8443/": "https://bot.example:8443",
		"https://bot.example.": "https://bot.example", "https://bot.example:65536": "",
	} {
		id, _, err := NewIdentifier(IdentifierConfig{Agents: []Agent{{Name: "signer", Sign: &Signing{Keys: "file", Directory: text}}}})
		if (err == nil) != (want != "") || err == nil && id.Agents()[0].Signer.Directory != want {
			t.Errorf("%s: error %v, want the directory %q", text, err, want)
		}
	}
}
