package fetch

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"hash/crc32"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/origin"
)

var update = flag.Bool("update", false, "write generated files instead of checking them")

// samples are records of every shape, each made by Next.
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

// withoutBody is what a record is after decoding.
func withoutBody(r Record) Record {
	r.Body = nil
	if r.LastGood != nil {
		c := *r.LastGood
		c.Body = nil
		r.LastGood = &c
	}
	return r
}

func TestRecordBinary(t *testing.T) {
	t.Parallel()
	for name, r := range samples() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := r.MarshalBinary()
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(data, []byte("Disallow")) {
				t.Error("the binary form has a body")
			}
			n := Record{State: StateRules, Body: []byte("must go")}
			if err := n.UnmarshalBinary(data); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(n, withoutBody(r)) {
				t.Errorf("decoded %+v\nwant %+v", n, withoutBody(r))
			}
			if restored := restart(t, r); !reflect.DeepEqual(restored, r) {
				t.Errorf("restored %+v\nwant %+v", restored, r)
			}
			t.Logf("%d octets", len(data))
		})
	}
}

// TestRecordBinary_Version1 reads what earlier releases wrote: the files under
// testdata are never changed, new shapes get new files.
func TestRecordBinary_Version1(t *testing.T) {
	t.Parallel()
	all := samples()
	for name, r := range all {
		file := filepath.Join("testdata", "record-v1-"+name+".hex")
		if _, err := os.Stat(file); *update && errors.Is(err, os.ErrNotExist) {
			data, err := r.MarshalBinary()
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(hex.EncodeToString(data)+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		data, err := hex.DecodeString(strings.TrimSpace(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		var n Record
		if err := n.UnmarshalBinary(data); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(n, withoutBody(r)) {
			t.Errorf("%s: decoded %+v\nwant %+v", name, n, withoutBody(r))
		}
	}
	files, err := filepath.Glob(filepath.Join("testdata", "record-v1-*.hex"))
	if err != nil || len(files) != len(all) {
		t.Errorf("%d files for %d records, %v", len(files), len(all), err)
	}
}

func TestRecordBinary_DecodedDeniesWithoutBody(t *testing.T) {
	t.Parallel()
	p := Policy{Mode: ModeStale}
	for name, r := range samples() {
		n := withoutBody(r)
		if name == "rules-empty" {
			continue
		}
		if _, ok := r.BodySHA256(); ok {
			if got := p.Access(n, n.FetchedAt); got != AccessDeny {
				t.Errorf("%s without its body: %s", name, got)
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
				t.Errorf("%s took %q", name, wrong)
			}
		}
		if err := r.SetBody([]byte(rules)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if shared != nil && shared.Body != nil {
			t.Errorf("%s: SetBody wrote to a shared copy", name)
		}
	}
	for _, name := range []string{"new", "absent", "unreachable"} {
		r := all[name]
		if err := r.SetBody(nil); err == nil {
			t.Errorf("%s took a body", name)
		}
	}
}

func TestRecordBinary_Refuses(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Record){
		"no origin":             func(r *Record) { r.Origin = origin.Origin{} },
		"origin not canonical":  func(r *Record) { r.Origin.Host = "A.example" },
		"unknown state":         func(r *Record) { r.State = 9 },
		"absent with a body":    func(r *Record) { r.State = StateAbsent },
		"good with a copy":      func(r *Record) { r.LastGood = &Copy{} },
		"attempts alone":        func(r *Record) { r.Attempts = 1 },
		"negative attempts":     func(r *Record) { r.Attempts = -1 },
		"run without attempts":  func(r *Record) { r.UnreachableSince = t0 },
		"next attempt alone":    func(r *Record) { r.NextAttempt = t0 },
		"failure alone":         func(r *Record) { r.LastFailure.Cause = CauseDNS },
		"negative status":       func(r *Record) { r.Status = -1 },
		"long detail":           func(r *Record) { r.Detail = strings.Repeat("x", maxRecordString+1) },
		"long hop":              func(r *Record) { r.Hops = []string{strings.Repeat("x", maxRecordString+1)} },
		"many hops":             func(r *Record) { r.Hops = make([]string, maxRecordHops+1) },
		"time beyond calendars": func(r *Record) { r.FetchedAt = time.Unix(1<<60, 0) },
	} {
		r := samples()["rules"]
		change(&r)
		if data, err := r.MarshalBinary(); err == nil {
			t.Errorf("%s: encoded as %x", name, data)
		}
	}
}

// TestRecordBinary_Torn: a record that was cut, lengthened or flipped anywhere is
// an error, and leaves the receiver alone.
func TestRecordBinary_Torn(t *testing.T) {
	t.Parallel()
	data, err := samples()["unreachable-with-copy"].MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	refuse := func(what string, at int, broken []byte) {
		t.Helper()
		r := Record{Detail: "mine"}
		if err := r.UnmarshalBinary(broken); err == nil || r.Detail != "mine" {
			t.Errorf("%s at %d: %v", what, at, err)
		}
	}
	for n := range data {
		refuse("cut", n, data[:n])
		for bit := range 8 {
			flipped := bytes.Clone(data)
			flipped[n] ^= 1 << bit
			refuse("flipped", n, flipped)
		}
	}
	refuse("lengthened", len(data), append(bytes.Clone(data), 0))
	refuse("doubled", len(data), append(bytes.Clone(data), data...))
	refuse("zeroes", 0, make([]byte, 4096))
	more := append(bytes.Clone(data[:len(data)-crc32.Size]), 0)
	refuse("lengthened inside its checksum", len(data), binary.BigEndian.AppendUint32(more, crc32.Checksum(more, castagnoli)))

	later := bytes.Clone(data)
	later[len(recordMagic)]++
	if err := new(Record).UnmarshalBinary(later); !errors.Is(err, ErrRecordVersion) {
		t.Errorf("later version: %v", err)
	}
}

// FuzzRecordBinary holds that no octets make decoding panic or a record that
// cannot be encoded again. Half of the inputs get a right checksum, as otherwise
// it is all that would be tested.
func FuzzRecordBinary(f *testing.F) {
	for _, r := range samples() {
		data, err := r.MarshalBinary()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, false)
		f.Add(data[:len(data)-crc32.Size], true)
	}
	f.Fuzz(func(t *testing.T, data []byte, sum bool) {
		if sum {
			data = binary.BigEndian.AppendUint32(bytes.Clone(data), crc32.Checksum(data, castagnoli))
		}
		var r Record
		if err := r.UnmarshalBinary(data); err != nil {
			return
		}
		again, err := r.MarshalBinary()
		if err != nil {
			t.Fatalf("decoded, but not encoded: %v", err)
		}
		var n Record
		if err := n.UnmarshalBinary(again); err != nil || !reflect.DeepEqual(n, r) {
			t.Fatalf("%+v became %+v, %v", r, n, err)
		}
		if r.State == StateRules || r.LastGood != nil {
			if sum, ok := r.BodySHA256(); !ok || (sum != emptySHA256 && (Policy{Mode: ModeStale}).Access(r, r.FetchedAt) != AccessDeny) {
				t.Fatal("a record without its body permits something")
			}
		}
	})
}
