package engine

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/webbotauth"
)

// signers returns a site with agents that sign, by their files of keys.
func signers(t *testing.T, files map[string]string) *SitePolicy {
	t.Helper()
	var c enforce.IdentifierConfig
	for name, file := range files {
		c.Agents = append(c.Agents, enforce.Agent{
			Name: name, SendUserAgent: name + "/2.0 (+https://bot.example)", SendFrom: "bot@bot.example",
			Sign: &enforce.Signing{Keys: file, Directory: "https://bot.example", StringHosts: []string{"localhost"}},
		})
	}
	id, _, err := enforce.NewIdentifier(c)
	if err != nil {
		t.Fatal(err)
	}
	return &SitePolicy{Identifier: id}
}

// plainAgent returns an identifier with an agent that does not sign.
func plainAgent(t *testing.T, name string) *enforce.Identifier {
	t.Helper()
	id, _, err := enforce.NewIdentifier(enforce.IdentifierConfig{Agents: []enforce.Agent{{Name: name}}})
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// writeKeys replaces a file of keys.
func writeKeys(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.WriteFile(file+".new", text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}

func newKey(t *testing.T) webbotauth.SigningKey {
	t.Helper()
	key, err := webbotauth.Generate(time.Time{}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestFollowKeys checks that an unreadable file is an error at load. Later the earlier keys stay in
// use, and the log names the file. A key always belongs to one agent, even after a change.
func TestFollowKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one.jwk"), filepath.Join(dir, "two.jwk")
	first, second, third := newKey(t), newKey(t), newKey(t)
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		load := func(files map[string]string) (*Engine, *SitePolicy, error) {
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(cancel)
			e, s := &Engine{logger: zap.New(core)}, signers(t, files)
			err := e.followKeys(ctx, s)
			if err != nil { // Caddy ends a configuration that it rejects
				cancel()
			}
			return e, s, err
		}
		if _, _, err := load(map[string]string{"a": one}); err == nil || !strings.Contains(err.Error(), one) {
			t.Errorf("a missing file: error %v", err)
		}
		writeKeys(t, one, webbotauth.Keys{first}.Private())
		writeKeys(t, two, webbotauth.Keys{first}.Private())
		if _, _, err := load(map[string]string{"a": one, "b": two}); err == nil || !strings.Contains(err.Error(), "each agent needs its own key") {
			t.Errorf("two agents with one key: error %v", err)
		}
		writeKeys(t, two, webbotauth.Keys{second}.Private())
		e, s, err := load(map[string]string{"a": one, "b": two})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.followKeys(t.Context(), signers(t, map[string]string{"A": one})); err != nil {
			t.Errorf("one agent at two sites: %v", err)
		}
		e.sites = []*SitePolicy{{Identifier: plainAgent(t, "a")}, s}
		writeKeys(t, filepath.Join(dir, "three.jwk"), webbotauth.Keys{third}.Private())
		if err := e.followKeys(t.Context(), signers(t, map[string]string{"A": filepath.Join(dir, "three.jwk")})); err == nil || !strings.Contains(err.Error(), "another site") {
			t.Errorf("one agent at two sites with different keys: error %v", err)
		}
		if at, id, ok := e.Agent("a"); at != s || !ok || !id.Config.Signs() {
			t.Errorf("Agent returned %v, want the block that signs", id)
		}
		a := s.Identifier.AskedAs("a")
		for i, step := range []struct {
			text      []byte
			key, said string
		}{
			{webbotauth.Keys{third}.Private(), third.ID, third.ID},
			{[]byte("{"), third.ID, one + ": reading keys"},
			{webbotauth.Keys{second}.Private(), third.ID, "is also agent \"b\"'s"},
		} {
			logs.TakeAll()
			writeKeys(t, one, step.text)
			time.Sleep(5 * time.Second)
			synctest.Wait()
			keys := a.Signer.Keys()
			said := logs.FilterField(zap.String("agent", "a")).All()
			if len(keys) != 1 || keys[0].ID != step.key || len(said) != 1 || !strings.Contains(said[0].Message+lineOf(said[0]), step.said) {
				t.Errorf("step %d: keys %v, log %v", i, keys, said)
			}
		}
		writeKeys(t, two, webbotauth.Keys{newKey(t)}.Private())
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if keys := a.Signer.Keys(); keys[0].ID != second.ID {
			t.Errorf("the other agent has given the key up, but the keys are %v", keys)
		}
	})
}

// lineOf returns the fields of an entry as text.
func lineOf(e observer.LoggedEntry) string {
	var text strings.Builder
	for _, v := range e.ContextMap() {
		text.WriteString(" ")
		switch v := v.(type) {
		case string:
			text.WriteString(v)
		case []any:
			for _, s := range v {
				text.WriteString(s.(string))
			}
		}
	}
	return text.String()
}

// TestSendAs checks that each hop of a fetch in an agent's name has that name, and is signed for
// its own host in the form that the host wants. The fetcher's own request stays unchanged.
func TestSendAs(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "keys.jwk")
	key := newKey(t)
	writeKeys(t, file, webbotauth.Keys{key}.Private())
	e, s := &Engine{logger: zap.NewNop()}, signers(t, map[string]string{"bot": file})
	if err := e.followKeys(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	e.sites = []*SitePolicy{s}
	var seen http.Header
	server := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen = r.Header }))
	defer server.Close()
	transport := robotsTransport{server.Client().Transport, func(origin.Origin) error { return nil }}
	ask := func(token, host string) http.Header {
		t.Helper()
		url := strings.Replace(server.URL, "127.0.0.1", host, 1)
		r, err := http.NewRequestWithContext(e.askAs(t.Context(), token), http.MethodGet, url+"/robots.txt", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("User-Agent", "asked")
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if len(r.Header) != 1 {
			t.Errorf("the fetcher's request has the header %v", r.Header)
		}
		return seen
	}
	server.Client().Transport.(*http.Transport).TLSClientConfig.InsecureSkipVerify = true
	if h := ask("bot", "127.0.0.1"); h.Get("User-Agent") != "bot/2.0 (+https://bot.example)" || h.Get("From") != "bot@bot.example" ||
		!strings.Contains(h.Get("Signature-Input"), key.ID) || !strings.HasPrefix(h.Get("Signature-Agent"), "sig1=") {
		t.Errorf("in the agent's name: header %v", h)
	}
	if h := ask("bot", "localhost"); h.Get("Signature-Agent") != `"https://bot.example"` {
		t.Errorf("a host with the string form: header %v", h)
	}
	if h := ask("", "127.0.0.1"); h.Get("User-Agent") != "asked" || h.Get("From")+h.Get("Signature") != "" {
		t.Errorf("in the gateway's own name: header %v", h)
	}
}
