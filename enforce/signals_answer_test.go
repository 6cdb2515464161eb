package enforce

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/robotstxt"
	"github.com/crawlgate/crawlgate/signals/preferences"
)

// answered returns a decision that let a request of Seeker pass, whose purpose is training.
func answered(mode Mode, p PreferenceMode) Decision {
	d := Decision{Allowed: true, Mode: mode, Reason: ReasonNoRule, Purposes: []string{"train-ai"}}
	d.Tokens = []string{"Seeker"}
	d.preferMode, d.reads = p, Signals{RobotsTxt: true, Headers: true, HTML: HTMLHold}
	return d
}

// TestReadAnswer checks that fields and tags are shown, logged and compared with the agent's
// purposes. The log has everything that an audit needs to compute the result again.
func TestReadAnswer(t *testing.T) {
	t.Parallel()
	zipped := func(s string) []byte {
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		_, _ = w.Write([]byte(s))
		_ = w.Close()
		return b.Bytes()
	}
	const noAI = `<head><meta name=robots content="noai">`
	tests := map[string]struct {
		header     http.Header
		page       Page
		mode       Mode
		preference PreferenceMode
		exception  string

		dictionary, conflict string
		fields               []string
		denied, would, cut   bool
	}{
		"nothing": {page: Page{Head: []byte("<head></head><body>")}, preference: PreferencesDeny},
		"field": {
			header: http.Header{"X-Robots-Tag": {"noai"}}, preference: PreferencesDeny, denied: true,
			dictionary: "train-ai=n;from=x-robots-tag, noai", conflict: "train-ai=n;from=x-robots-tag",
			fields: []string{"X-Robots-Tag: noai"},
		},
		"tag": {
			page: Page{Head: []byte(noAI + "</head><body>")}, preference: PreferencesDeny, denied: true,
			dictionary: "train-ai=n;from=meta, noai", conflict: "train-ai=n;from=meta", fields: []string{"meta robots: noai"},
		},
		"tag for the agent": {
			page: Page{Head: []byte(`<meta name=SEEKER content=noindex><meta name=other content=noai></head><body>`)}, preference: PreferencesDeny,
			dictionary: "search=n;from=meta, noindex", fields: []string{"meta seeker: noindex"},
		},
		"log": {
			page: Page{Head: []byte(noAI + "</head><body>")}, conflict: "train-ai=n;from=meta", preference: PreferencesLog,
			dictionary: "train-ai=n;from=meta, noai", fields: []string{"meta robots: noai"},
		},
		"shadow mode": {
			page: Page{Head: []byte(noAI + "</head><body>")}, mode: ModeReport, preference: PreferencesDeny, would: true,
			dictionary: "train-ai=n;from=meta, noai", conflict: "train-ai=n;from=meta", fields: []string{"meta robots: noai"},
		},
		"an exception lifts it": {
			page: Page{Head: []byte(noAI + "</head><body>")}, preference: PreferencesDeny, exception: "x-1",
			dictionary: "train-ai=n;from=meta, noai", fields: []string{"meta robots: noai"},
		},
		"a page that has passed": {
			page: Page{Head: []byte(noAI + "</head><body>"), Sent: true}, preference: PreferencesDeny, conflict: "train-ai=n;from=meta",
			dictionary: "train-ai=n;from=meta, noai", fields: []string{"meta robots: noai"},
		},
		"gzip": {
			page: Page{Head: zipped(noAI + "</head><body>"), Coding: []string{"gzip"}}, preference: PreferencesDeny, denied: true,
			dictionary: "train-ai=n;from=meta, noai", conflict: "train-ai=n;from=meta", fields: []string{"meta robots: noai"},
		},
		"a head without end": {
			page: Page{Head: []byte(noAI)}, preference: PreferencesDeny, denied: true, cut: true,
			dictionary: "train-ai=n;from=meta, noai", conflict: "train-ai=n;from=meta", fields: []string{"meta robots: noai"},
		},
		"a head without end in a whole page": {
			page: Page{Head: []byte(noAI), Whole: true}, preference: PreferencesDeny, denied: true,
			dictionary: "train-ai=n;from=meta, noai", conflict: "train-ai=n;from=meta", fields: []string{"meta robots: noai"},
		},
		"two codings": {page: Page{Head: zipped(noAI), Coding: []string{"gzip", "gzip"}, Whole: true}, preference: PreferencesDeny, cut: true},
		"unknown coding": {
			page: Page{Head: []byte(noAI), Coding: []string{"compress"}, Whole: true}, preference: PreferencesDeny, cut: true,
		},
		"decoded beyond the bound": {
			page:       Page{Head: zipped(strings.Repeat(" ", HTMLMax) + noAI + "</head><body>"), Coding: []string{"gzip"}, Whole: true},
			preference: PreferencesDeny, cut: true,
		},
		"a field that is too long for the log": {
			header: http.Header{"X-Robots-Tag": {"noai, " + strings.Repeat("x", maxSignalFields)}}, preference: PreferencesDeny,
			denied: true, cut: true, dictionary: "train-ai=n;from=x-robots-tag, noai", conflict: "train-ai=n;from=x-robots-tag",
		},
		"license": {
			page:       Page{Head: []byte(`<link rel="license" type="application/rsl+xml" href="https://a.example/l.xml"></head><body>`)},
			preference: PreferencesDeny, fields: []string{"link license: https://a.example/l.xml"}, dictionary: `license=("https://a.example/l.xml";from=meta)`,
		},
		"numbers are numbers": {
			header:     http.Header{"X-Robots-Tag": {"max-snippet: 50, max-video-preview: -1, max-image-preview: large, unavailable_after: 20400625T150000Z, nocache"}},
			dictionary: "nocache, unavailable-after=@2224249200, max-snippet=50, max-image-preview=large, max-video-preview=-1",
			fields:     []string{"X-Robots-Tag: max-snippet: 50, max-video-preview: -1, max-image-preview: large, unavailable_after: 20400625T150000Z, nocache"},
		},
		"the 33rd line": {
			header:     http.Header{"X-Robots-Tag": append(slices.Repeat([]string{"noindex"}, 32), "noai")},
			dictionary: "search=n;from=x-robots-tag, noindex", cut: true, fields: append(slices.Repeat([]string{"X-Robots-Tag: noindex"}, 32), "X-Robots-Tag: noai"),
		},
		"a usage that is too long": {
			header: http.Header{"Content-Usage": {"train-ai=n, x=\"" + strings.Repeat("y", 5000) + `"`}}, preference: PreferencesDeny, cut: true,
		},
		"use is shown": {
			header: http.Header{"Content-Signal": {"ai-train=no, use=reference"}}, preference: PreferencesLog, conflict: "train-ai=n;from=content-signal",
			dictionary: "train-ai=n;from=content-signal, use=reference;from=content-signal", fields: []string{"Content-Signal: ai-train=no, use=reference"},
		},
		"TDM tags": {
			page:       Page{Head: []byte(`<meta name="tdm-reservation" content="1"></head><body>`)},
			preference: PreferencesDeny, denied: true, fields: []string{"meta tdm-reservation: 1"},
			dictionary: "train-ai=n;from=meta, tdm=n;from=meta", conflict: "train-ai=n;from=meta",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := answered(test.mode, test.preference)
			d.Exception = test.exception
			dictionary := d.ReadAnswer(http.StatusOK, test.header)
			if test.page.Head != nil {
				test.page.Type = "text/html"
				dictionary = d.ReadPage(test.page)
			}
			if dictionary != test.dictionary || d.Conflict != test.conflict || !slices.Equal(d.SignalFields, test.fields) {
				t.Errorf("dictionary %q, conflict %q, fields %q", dictionary, d.Conflict, d.SignalFields)
			}
			if d.Allowed == test.denied || d.WouldDeny != test.would || d.SignalsCut != test.cut {
				t.Errorf("allowed %t, would deny %t, cut %t", d.Allowed, d.WouldDeny, d.SignalsCut)
			}
			rereads(t, d.Record())
		})
	}
}

// rereads computes the result of a log line again.
func rereads(t *testing.T, r LogRecord) {
	t.Helper()
	signals, wishes, ok := Reread(&r, nil, robotstxt.Agent{}, "/")
	if ok == r.SignalsCut {
		t.Errorf("Reread returned %t, want %t", ok, !r.SignalsCut)
	}
	if ok && (!slices.Equal(signals, r.Signals) || !slices.Equal(wishes, r.Preferences)) {
		t.Errorf("Reread returned %q and %q, the log has %q and %q", signals, wishes, r.Signals, r.Preferences)
	}
}

// TestReadAnswerByStatus checks that a preference is about the content that is sent
// (draft-ietf-aipref-attach-05 section 2). A 2xx has content, and a 304 updates it (RFC 9110
// section 15.4.5). A redirect, an error or a price (402) passes, whatever its fields.
func TestReadAnswerByStatus(t *testing.T) {
	t.Parallel()
	header := http.Header{"X-Robots-Tag": {"noai"}, "Content-Usage": {"train-ai=n"}, "Tdm-Reservation": {"1"}}
	for status := 101; status < 600; status++ {
		carries := status >= 200 && status < 300 || status == http.StatusNotModified
		d := answered(ModeEnforce, PreferencesDeny)
		shown := d.ReadAnswer(status, header)
		if d.Allowed == carries || (shown != "") != carries || (d.Conflict != "") != carries || len(d.SignalFields) > 0 != carries {
			t.Errorf("%d: allowed %t, shown %q, conflict %q, fields %q", status, d.Allowed, shown, d.Conflict, d.SignalFields)
		}
		rereads(t, d.Record())
	}
	d := answered(ModeEnforce, PreferencesLog)
	d.Preferences = robotsSays(t, "User-agent: *\nContent-Usage: train-ai=n\n")
	if got, want := d.ReadAnswer(http.StatusNotFound, header), "train-ai=n;from=robots;line=2"; got != want {
		t.Errorf("the preference of robots.txt is shown as %q, want %q", got, want)
	}
}

// robotsSays returns the preferences of a robots.txt for all crawlers.
func robotsSays(t *testing.T, text string) preferences.Set {
	t.Helper()
	return Bind(robotstxt.Parse([]byte(text)), robotstxt.Agent{}, nil).Preferences("/", PathsAsSent)
}

func TestHTMLMode(t *testing.T) {
	t.Parallel()
	for mode, reads := range map[HTMLMode]bool{"": false, HTMLOff: false, HTMLLog: true, HTMLHold: true} {
		if err := mode.Check(); err != nil || mode.Reads() != reads {
			t.Errorf("%q: error %v, reads %t, want %t", mode, err, mode.Reads(), reads)
		}
	}
	if mode := HTMLMode("on"); mode.Reads() || mode.Check() == nil {
		t.Error("an unknown mode reads pages, or passes Check")
	}
}
