package enforce

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
)

// fullDecision returns a decision with every field set.
func fullDecision(tb testing.TB) Decision {
	tb.Helper()
	return Decision{
		Allowed: true, Reason: ReasonDisallowed, Detail: "a detail", Mode: ModeReport, WouldDeny: true,
		Agent: "news", Tokens: []string{"AcmeNews", "Acme"}, Owner: "team news", Contact: "news@acme.example",
		IdentifiedBy: "credential+user_agent", UserAgent: "AcmeNews/1.0",
		Origin: mustOrigin(tb, "https://example.com:8443"), PathVisible: true,
		Group: "Acme", Rule: "/private/", Line: 12, Form: PathBoth, State: fetch.StateUnreachable, Cause: fetch.CauseTimeout,
		SHA256: [32]byte{0xab, 31: 0xcd}, Source: robotscache.SourceWait, FetchedAt: now.Add(-90 * time.Second), Age: 90 * time.Second,
		FreshUntil: now.Add(time.Hour), RetryAfter: 1500 * time.Millisecond, CrawlDelay: 2500 * time.Millisecond,
		Wait: 1234 * time.Millisecond, Exception: "example.com: contract",
	}
}

// TestRecordIsStable checks the names that readers of logs use (docs/access-log.md). A change needs
// a new schema.
func TestRecordIsStable(t *testing.T) {
	t.Parallel()
	r := fullDecision(t).Record()
	r.DialMillis, r.Address, r.Gateway, r.Version = 7, "192.0.2.1:443", "east-1", "v1.2.3"
	r.Config, r.DecidedAt, r.SentAt, r.EndedAt = "0123456789abcdef", 1795262400.2, 1795262400.250001, SecondsOf(now)
	r.UserAgentSent, r.Signed, r.SignatureForm, r.Unsigned = "AcmeNews/2.0", "poqk", "string", "no_key"
	r.Signals, r.Preferences = []string{"noindex;from=x-robots-tag"}, []string{"train-ai=n;from=robots;line=4"}
	got, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"schema":2,"decision":"allow","reason":"disallowed","detail":"a detail","mode":"report","would_deny":true,` +
		`"agent":"news","tokens":["AcmeNews","Acme"],"owner":"team news","contact":"news@acme.example","identified_by":"credential+user_agent","user_agent":"AcmeNews/1.0",` +
		`"origin":"https://example.com:8443","robots_url":"https://example.com:8443/robots.txt","state":"unreachable",` +
		`"cause":"timeout","group":"Acme","rule":"/private/","line":12,"form":"both",` +
		`"sha256":"ab000000000000000000000000000000000000000000000000000000000000cd","age_s":90,"source":"wait",` +
		`"path_visible":true,"wait_ms":1234,"crawl_delay_s":2.5,"dial_ms":7,"address":"192.0.2.1:443","exception":"example.com: contract",` +
		`"user_agent_sent":"AcmeNews/2.0","signed":"poqk","signature_form":"string","unsigned":"no_key",` +
		`"gateway":"east-1","version":"v1.2.3","config":"0123456789abcdef","decided_at":1795262400.2,"sent_at":1795262400.250001,"ended_at":1795262400,` +
		`"signals":["noindex;from=x-robots-tag"],"preferences":["train-ai=n;from=robots;line=4"]}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	const empty = `{"schema":2,"decision":"error","reason":"internal","mode":"enforce","would_deny":false,"agent":"","origin":"",` +
		`"robots_url":"","state":"unknown","source":"none","path_visible":false}`
	if got, _ := json.Marshal(Decision{}.Record()); string(got) != empty {
		t.Errorf("the record of the zero decision is %s, want %s", got, empty)
	}
}

func TestRecordShowsNothingUnescaped(t *testing.T) {
	t.Parallel()
	d := fullDecision(t)
	d.Rule, d.UserAgent, d.Agent = "/a\x00b\u202e"+strings.Repeat("x", 9000), "A\r\nB", "x\x7f"
	r := d.Record()
	if !strings.HasPrefix(r.Rule, `/a\x00b\xe2\x80\xae`) || len(r.Rule) != maxShown || r.UserAgent != `A\x0d\x0aB` ||
		r.Agent != `x\x7f` {
		t.Errorf("got %+v", r)
	}
}

// TestSiteTextIsVisible checks that neither the log nor any form of a refusal shows a site's rule
// or group in a way that looks like another.
func TestSiteTextIsVisible(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ text, shown string }{
		{"/a\u2011b", `/a\xe2\x80\x91b`},
		{"/p\u0430ge", `/p\xd0\xb0ge`},
		{"/\uff41dmin", `/\xef\xbd\x81dmin`},
		{"/a\u00a0b\u202e", `/a\xc2\xa0b\xe2\x80\xae`},
		{"/caf\u00e9/\u767e\u5ea6", "/caf\u00e9/\u767e\u5ea6"},
	} {
		d, asked := sample(t, ReasonDisallowed)
		d.Rule, d.Group, d.quoted = tt.text, tt.text, quotation{}
		if r := d.Record(); r.Rule != tt.shown || r.Group != tt.shown {
			t.Errorf("%+q: the record has the rule %+q and the group %+q, want %+q", tt.text, r.Rule, r.Group, tt.shown)
		}
		for form, accept := range forms {
			asked.Accept = accept
			refusal := Render(d, asked)
			all := string(refusal.Body) + refusal.Reason + refusal.Header.Get("Proxy-Status")
			if tt.text != tt.shown && strings.Contains(all, tt.text) || form == "txt" && !strings.Contains(all, tt.shown) {
				t.Errorf("the %s form of %+q hides or copies it: %s", form, tt.text, all)
			}
		}
	}
}

// TestSeconds checks that a time survives the log to the microsecond. A value that is not a number,
// which a log filter may leave, becomes the zero time.
func TestSeconds(t *testing.T) {
	t.Parallel()
	for _, want := range []time.Time{{}, now, now.Add(123456789 * time.Microsecond), time.Unix(1, 0), time.Date(2199, 12, 31, 23, 59, 59, 999999e3, time.UTC)} {
		text, err := json.Marshal(SecondsOf(want))
		var back Seconds
		if err == nil {
			err = json.Unmarshal(text, &back)
		}
		if got := back.Time(); err != nil || !got.Equal(want) || got.IsZero() != want.IsZero() {
			t.Errorf("%v became %s, which became %v, error %v", want, text, got, err)
		}
	}
	for _, text := range []string{`"REDACTED"`, `"1"`, `true`, `null`, `[1]`, `{}`, `1e999`, `0`, `-1`} {
		var r LogRecord
		if err := json.Unmarshal([]byte(`{"decided_at":`+text+`,"line":7}`), &r); err != nil || !r.DecidedAt.Time().IsZero() || r.Line != 7 {
			t.Errorf("%s: got %v, error %v, want the zero time", text, r.DecidedAt, err)
		}
	}
}
