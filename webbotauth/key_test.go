package webbotauth

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

func generate(t *testing.T, notBefore, expires time.Time) SigningKey {
	t.Helper()
	k, err := Generate(notBefore, expires)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestRotation checks section 5.5.2 of the draft: a key is published before it signs, and as long
// as its signatures may be met.
func TestRotation(t *testing.T) {
	t.Parallel()
	start := time.Unix(1_800_000_000, 0)
	day := func(n int) time.Time { return start.AddDate(0, 0, n) }
	first, second := generate(t, time.Time{}, day(12)), generate(t, day(10), time.Time{})
	keys, err := ParseKeys(Keys{second, first}.Private())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		day       int
		signs     string
		published int
	}{{0, first.ID, 2}, {9, first.ID, 2}, {10, second.ID, 2}, {11, second.ID, 2}, {12, second.ID, 1}} {
		k, ok := keys.At(day(c.day))
		if published := keys.Published(day(c.day)); !ok || k.ID != c.signs || len(published) != c.published {
			t.Errorf("day %d: key %s signs and %d keys are published", c.day, k.ID, len(published))
		}
	}
	if _, ok := (Keys{second}).At(day(9)); ok {
		t.Error("At returns a key before its time")
	}
	if (SigningKey{}).ID != "" || len(Keys(nil).Published(start)) > 0 {
		t.Error("the zero key has an id, or an empty list publishes keys")
	}
}

// TestRotate checks that over a year of rotations exactly one key signs at any time, each is
// published a day before it signs and a day after, and no key is kept longer.
func TestRotate(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	start := time.Unix(1_800_000_000, 500_000_000)
	keys, err := Keys(nil).Rotate(start, day)
	if err != nil || len(keys) != 1 || !keys[0].NotBefore.IsZero() {
		t.Fatal(keys, err)
	}
	firstSeen, signed := map[string]time.Time{}, map[string]bool{}
	for now := start; now.Before(start.Add(365 * day)); now = now.Add(time.Hour) {
		if now.Sub(start)%(30*day) == 29*day {
			if keys, err = keys.Rotate(now, day); err != nil {
				t.Fatal(err)
			}
			if keys, err = ParseKeys(keys.Private()); err != nil { // as the gateway reads them
				t.Fatal(err)
			}
			if _, err := keys.Rotate(now, day); err == nil || !strings.Contains(err.Error(), "a rotation is under way: key "+keys[len(keys)-1].ID+" begins to sign at") {
				t.Errorf("a second rotation at once: got error %v", err)
			}
		}
		states := map[string]int{}
		for _, key := range keys {
			states[keys.State(key, now)]++
			if _, seen := firstSeen[key.ID]; !seen {
				firstSeen[key.ID] = now
			}
			if keys.State(key, now) == "signs" && !signed[key.ID] {
				signed[key.ID] = true
				if ahead := now.Sub(firstSeen[key.ID]); len(signed) > 1 && ahead < day-time.Second {
					t.Errorf("key %s signs %s after it was published, want at least a day", key, ahead)
				}
			}
		}
		if states["signs"] != 1 || len(keys.Published(now)) > 2 || len(keys) > 3 {
			t.Fatalf("after %s: states %v of %d keys", now.Sub(start), states, len(keys))
		}
	}
	if len(signed) != 13 {
		t.Errorf("%d keys have signed, want 13", len(signed))
	}
	short := Keys{generate(t, time.Time{}, start.Add(time.Hour))}
	if _, err := short.Rotate(start, day); err == nil || !strings.Contains(err.Error(), "no key would sign") {
		t.Errorf("a rotation that leaves a gap: got error %v", err)
	}
}

// TestParseKeysRefuses checks that no file is accepted in part, and that no error shows a secret.
func TestParseKeysRefuses(t *testing.T) {
	t.Parallel()
	k := generate(t, time.Time{}, time.Time{})
	var set jwkSet
	if err := json.Unmarshal(Keys{k}.Private(), &set); err != nil {
		t.Fatal(err)
	}
	good := set.Keys[0]
	with := func(change func(*jwk)) string {
		j := good
		change(&j)
		text, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	one := with(func(*jwk) {})
	many := strings.TrimSuffix(strings.Repeat(one+",", maxKeys+1), ",")
	for text, want := range map[string]string{
		"":                                      "no JSON Web Key",
		with(func(*jwk) {})[:60]:                "no JSON Web Key",
		with(func(*jwk) {}) + "x":               "something follows",
		"{}":                                    "it has no keys",
		`{"keys":[` + one + `,` + one + `]}`:    "it is there twice",
		`{"keys":[]}`:                           "it has no keys",
		`{"keys":[` + many + `]}`:               "more than 16",
		`{"keys":[` + many[:len(many)/2] + `]}`: "",
		`{"keys":[` + one + `],"keys":[` + one + `]}`:                                     `field "keys" is given twice`,
		`{"keys":[` + strings.Replace(one, "{", `{"exp":5,"Exp":6,`, 1) + `]}`:            `field "Exp" is given twice`,
		with(func(j *jwk) { j.Type = "RSA" }):                                             "kty OKP",
		with(func(j *jwk) { j.D = "" }):                                                   "no d",
		with(func(j *jwk) { j.D = j.D[1:] }):                                              "base64url of 32",
		with(func(j *jwk) { j.X = good.D }):                                               "x does not belong",
		with(func(j *jwk) { j.ID = "k1" }):                                                "thumbprint",
		with(func(j *jwk) { j.From, j.Expires = 5, 5 }):                                   "exp is not after nbf",
		`{"kty":"OKP","crv":"Ed25519","d":"n4Ni-HpISpVObnQMW0wOhCKROaIKqKtW_2ZYb2p9KcU"}`: "RFC 9421",
	} {
		keys, err := ParseKeys([]byte(text))
		if err == nil || keys != nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), good.D) {
			t.Errorf("%.80s: %v, want an error with %q", text, err, want)
		}
	}
	if keys, err := ParseKeys([]byte(with(func(*jwk) {}))); err != nil || len(keys) != 1 || keys[0].ID != k.ID {
		t.Errorf("ParseKeys of a single key = %v, %v", keys, err)
	}
	if text := fmt.Sprintf("%v %+v %#v %s", k, k, k, Keys{k}); strings.Contains(text, "private") || strings.Count(text, k.ID) != 4 {
		t.Errorf("a formatted key shows its secret or lacks its id: %s", text)
	}
}

// FuzzParseKeys checks that accepted keys can sign, and that they are the same after they are
// written and read.
func FuzzParseKeys(f *testing.F) {
	k, err := Generate(time.Unix(5, 0), time.Unix(9, 0))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(Keys{k}.Private())
	f.Add([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","d":"` + strings.Repeat("A", 43) + `"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		keys, err := ParseKeys(data)
		if err != nil {
			return
		}
		again, err := ParseKeys(keys.Private())
		if err != nil || len(again) != len(keys) {
			t.Fatalf("reading the keys %v again: %v", keys, err)
		}
		for i := range keys {
			if again[i].ID != keys[i].ID || !again[i].NotBefore.Equal(keys[i].NotBefore) || !again[i].Expires.Equal(keys[i].Expires) {
				t.Errorf("key %v is read again as %v", keys[i], again[i])
			}
		}
	})
}
