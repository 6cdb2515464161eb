package fetch

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/origin"
)

// samples returns records of every shape, each made by Next.
func samples() map[string]Record {
	p := Policy{}
	hops := []string{"https://a.example/robots.txt", "https://b.example/robots.txt"}
	moved := Outcome{Kind: KindRules, Status: 200, Body: []byte(rules), Truncated: true, Hops: hops}
	reset := Outcome{Cause: CauseReset, Detail: "connection closed before the response header ended", Hops: hops[:1]}
	v6 := Record{Origin: origin.Origin{Scheme: "ftp", Host: "2001:db8::1", Port: 2121}}
	return map[string]Record{
		"new":                    {Origin: site},
		"rules":                  after(p, 0*hour, good),
		"rules-empty":            after(p, 0*hour, Outcome{Kind: KindRules, Status: 204}),
		"rules-moved":            after(p, 1234567*time.Microsecond, moved),
		"rules-refresh-failed":   after(p, 0*hour, moved, 20*hour, reset, 21*hour, broken),
		"absent":                 after(p, 0*hour, gone),
		"absent-refresh-failed":  after(p, 0*hour, Outcome{Kind: KindAbsent, Cause: CauseRedirects, Detail: "redirect loop", Hops: hops}, hour, reset),
		"unreachable":            after(p, 0*hour, reset),
		"unreachable-with-copy":  after(p, 0*hour, moved, 30*hour, broken, 40*hour, reset),
		"unreachable-ipv6-ftp":   p.Next(v6, Outcome{Cause: CauseFTP, Detail: "530 no"}, t0),
		"unreachable-zero-cause": after(p, 0*hour, Outcome{}),
	}
}

// withoutBody returns a record as it is after decoding.
func withoutBody(r Record) Record {
	r.Body = nil
	if r.LastGood != nil {
		c := *r.LastGood
		c.Body = nil
		r.LastGood = &c
	}
	return r
}

func TestRecordJSON(t *testing.T) {
	t.Parallel()
	for name, r := range samples() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(data, []byte("Disallow")) {
				t.Error("the stored form has a body")
			}
			var n Record
			if err := json.Unmarshal(data, &n); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(n, withoutBody(r)) {
				t.Errorf("decoded %+v\nwant %+v", n, withoutBody(r))
			}
			if restored := restart(t, r); !reflect.DeepEqual(restored, r) {
				t.Errorf("restored %+v\nwant %+v", restored, r)
			}
			t.Logf("%d bytes", len(data))
		})
	}
}

// TestRecordJSON_Golden decodes records of earlier releases. The records in the file are never
// changed; new ones are added.
func TestRecordJSON_Golden(t *testing.T) {
	t.Parallel()
	const file = "testdata/records.json"
	want := samples()
	if *testdocs.Update {
		data, err := json.MarshalIndent(want, "", "\t")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, append(data, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]Record
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	for name, r := range want {
		if !reflect.DeepEqual(got[name], withoutBody(r)) {
			t.Errorf("%s: decoded %+v\nwant %+v", name, got[name], withoutBody(r))
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d records in the file, want %d", len(got), len(want))
	}
}

func TestRecordJSON_DecodedDeniesWithoutBody(t *testing.T) {
	t.Parallel()
	p := Policy{Mode: ModeStale}
	for name, r := range samples() {
		n := withoutBody(r)
		if name == "rules-empty" {
			continue
		}
		if _, ok := r.Text(); ok {
			if got := p.Access(n, n.FetchedAt); got != AccessDeny {
				t.Errorf("%s without its body: access %s, want deny", name, got)
			}
		}
	}
}

func TestRecordSetBody(t *testing.T) {
	t.Parallel()
	all := samples()
	for _, name := range []string{"rules", "unreachable-with-copy"} {
		r := withoutBody(all[name])
		shared := r.LastGood
		for _, wrong := range [][]byte{nil, {}, []byte("x"), []byte(rules + " ")} {
			if err := r.SetBody(wrong); err == nil {
				t.Errorf("SetBody of %s accepted %q", name, wrong)
			}
		}
		if err := r.SetBody([]byte(rules)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if shared != nil && shared.Body != nil {
			t.Errorf("SetBody of %s changed a shared copy", name)
		}
	}
	for _, name := range []string{"new", "absent", "unreachable"} {
		r := all[name]
		if err := r.SetBody(nil); err == nil {
			t.Errorf("SetBody of %s accepted a body", name)
		}
	}
}

func TestRecordJSON_Refuses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Record){
		"no origin":             func(r *Record) { r.Origin = origin.Origin{} },
		"unknown state":         func(r *Record) { r.State = 9 },
		"absent with a body":    func(r *Record) { r.State = StateAbsent },
		"good with a copy":      func(r *Record) { r.LastGood = &Copy{} },
		"attempts alone":        func(r *Record) { r.Attempts = 1 },
		"negative attempts":     func(r *Record) { r.Attempts = -1 },
		"run without attempts":  func(r *Record) { r.UnreachableSince = t0 },
		"next attempt alone":    func(r *Record) { r.NextAttempt = t0 },
		"failure alone":         func(r *Record) { r.LastFailure.Cause = CauseDNS },
		"time beyond calendars": func(r *Record) { r.FetchedAt = time.Unix(1<<60, 0) },
	} {
		r := samples()["rules"]
		change(&r)
		if err := keep(r); err == nil {
			t.Errorf("a record with %s is accepted", name)
		}
	}
}

// keep encodes a record and checks it, like a store.
func keep(r Record) error {
	if err := r.Check(); err != nil {
		return err
	}
	_, err := json.Marshal(r)
	return err
}

// A stored record that was changed is rejected.
func TestRecordJSON_RefusesToDecode(t *testing.T) {
	t.Parallel()
	for name, data := range map[string]string{
		"nothing":               `{}`,
		"another type":          `[]`,
		"no origin":             `{"state":"absent"}`,
		"origin not canonical":  `{"origin":"https://A.example","state":"absent"}`,
		"default port":          `{"origin":"https://a.example:443","state":"absent"}`,
		"unknown state":         `{"origin":"https://a.example","state":"fine"}`,
		"state as a number":     `{"origin":"https://a.example","state":2}`,
		"absent with a hash":    `{"origin":"https://a.example","state":"absent","sha256":"` + strings.Repeat("ab", 32) + `"}`,
		"short hash":            `{"origin":"https://a.example","state":"rules","sha256":"abab"}`,
		"hash of other digits":  `{"origin":"https://a.example","state":"rules","sha256":"` + strings.Repeat("xy", 32) + `"}`,
		"attempts alone":        `{"origin":"https://a.example","state":"absent","attempts":3}`,
		"time beyond calendars": `{"origin":"https://a.example","state":"absent","fetched_at":"20000-01-01T00:00:00Z"}`,
	} {
		var r Record
		if err := errors.Join(json.Unmarshal([]byte(data), &r), r.Check()); err == nil {
			t.Errorf("%s was decoded as %+v", name, r)
		}
	}
}

// FuzzRecordJSON checks that no bytes make decoding panic or return a record that cannot be encoded
// again.
func FuzzRecordJSON(f *testing.F) {
	for _, r := range samples() {
		data, err := json.Marshal(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var r Record
		if err := json.Unmarshal(data, &r); err != nil || r.Check() != nil {
			return
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatalf("decoded, but not encoded: %v", err)
		}
		var n Record
		if err := json.Unmarshal(again, &n); err != nil || !equal(n, r) {
			t.Fatalf("%+v became %+v, %v", r, n, err)
		}
		if text, ok := r.Text(); ok && text.SHA256 != emptySHA256 && (Policy{Mode: ModeStale}).Access(r, r.FetchedAt) != AccessDeny {
			t.Fatal("a record without its body permits something")
		}
	})
}

// equal reports whether two records mean the same: times in different zones are equal, and so are
// nil and empty hop lists.
func equal(a, b Record) bool {
	first, err1 := json.Marshal(a)
	second, err2 := json.Marshal(b)
	return err1 == nil && err2 == nil && bytes.Equal(first, second)
}
