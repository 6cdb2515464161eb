package fetch

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

type freshness struct {
	maxAge    time.Duration
	hasMaxAge bool
	noCache   bool
}

// TestGoogle_CacheControl checks max-age as in Google's specification.
func TestGoogle_CacheControl(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		header []string // alternating names and values
		want   freshness
	}{
		{"nothing", nil, freshness{}},
		{"max-age", []string{"Cache-Control", "max-age=600"}, freshness{maxAge: 600 * time.Second, hasMaxAge: true}},
		{"zero", []string{"Cache-Control", "max-age=0"}, freshness{hasMaxAge: true}},
		{"upper case and blanks", []string{"Cache-Control", " Public ,\tMAX-AGE = 600 "}, freshness{maxAge: 600 * time.Second, hasMaxAge: true}},
		{"quoted", []string{"Cache-Control", `max-age="600"`}, freshness{maxAge: 600 * time.Second, hasMaxAge: true}},
		{"shortest of two", []string{"Cache-Control", "max-age=600, max-age=60"}, freshness{maxAge: time.Minute, hasMaxAge: true}},
		{"shortest of two fields", []string{"Cache-Control", "max-age=60", "Cache-Control", "max-age=600"}, freshness{maxAge: time.Minute, hasMaxAge: true}},
		{"s-maxage alone", []string{"Cache-Control", "s-maxage=60"}, freshness{maxAge: time.Minute, hasMaxAge: true}},
		{"s-maxage shorter", []string{"Cache-Control", "max-age=600, s-maxage=60"}, freshness{maxAge: time.Minute, hasMaxAge: true}},
		{"s-maxage longer", []string{"Cache-Control", "max-age=60, s-maxage=600"}, freshness{maxAge: time.Minute, hasMaxAge: true}},
		{"no-cache", []string{"Cache-Control", "no-cache"}, freshness{noCache: true}},
		{"no-cache for a field", []string{"Cache-Control", `no-cache="Set-Cookie"`}, freshness{noCache: true}},
		{"no-store and max-age", []string{"Cache-Control", "no-store, max-age=600"}, freshness{maxAge: 600 * time.Second, hasMaxAge: true, noCache: true}},
		{"must-revalidate says nothing of time", []string{"Cache-Control", "must-revalidate, private"}, freshness{}},
		{"letters", []string{"Cache-Control", "max-age=abc"}, freshness{}},
		{"negative", []string{"Cache-Control", "max-age=-1"}, freshness{}},
		{"fraction", []string{"Cache-Control", "max-age=1.5"}, freshness{}},
		{"sign", []string{"Cache-Control", "max-age=+5"}, freshness{}},
		{"no value", []string{"Cache-Control", "max-age"}, freshness{}},
		{"beyond all numbers", []string{"Cache-Control", "max-age=99999999999999999999999"}, freshness{maxAge: maxSeconds * time.Second, hasMaxAge: true}},
		{"age taken off", []string{"Cache-Control", "max-age=600", "Age", "500"}, freshness{maxAge: 100 * time.Second, hasMaxAge: true}},
		{"older than its age", []string{"Cache-Control", "max-age=600", "Age", "601"}, freshness{hasMaxAge: true}},
		{"age of letters", []string{"Cache-Control", "max-age=600", "Age", "old"}, freshness{maxAge: 600 * time.Second, hasMaxAge: true}},
		{"age alone", []string{"Age", "500"}, freshness{}},
		{"expires", []string{"Expires", "Thu, 19 Nov 1981 08:52:00 GMT"}, freshness{}},
		{"pragma", []string{"Pragma", "no-cache"}, freshness{}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			h := http.Header{}
			for i := 0; i < len(tt.header); i += 2 {
				h.Add(tt.header[i], tt.header[i+1])
			}
			var out Outcome
			out.readFreshness(h)
			if got := (freshness{out.MaxAge, out.HasMaxAge, out.NoCache}); got != tt.want {
				t.Errorf("of %q: got %+v, want %+v", h, got, tt.want)
			}
		})
	}
}

func TestRFC9110_10_2_3_RetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"":                               0,
		"0":                              0,
		"120":                            2 * time.Minute,
		" 120 ":                          2 * time.Minute,
		"86400":                          24 * time.Hour,
		"86401":                          24*time.Hour + time.Second,
		"99999999999999999999":           maxSeconds * time.Second,
		"+5":                             0,
		"5s":                             0,
		"0010":                           10 * time.Second,
		"١٢":                             0,
		"-5":                             0,
		"1.5":                            0,
		"soon":                           0,
		"120, 240":                       0,
		"Mon, 04 May 2026 12:10:00 GMT":  10 * time.Minute,
		"Monday, 04-May-26 12:10:00 GMT": 10 * time.Minute,
		"Mon May  4 12:10:00 2026":       10 * time.Minute,
		"Mon, 04 May 2026 11:59:59 GMT":  0,
		"Tue, 04 May 2027 12:00:00 GMT":  365 * 24 * time.Hour,
		"Thu, 01 Jan 1970 00:00:00 GMT":  0,
		"Mon, 99 May 2026 12:10:00 GMT":  0,
	} {
		if got := ParseRetryAfter(value, now); got != want {
			t.Errorf("ParseRetryAfter(%q) = %s, want %s", value, got, want)
		}
	}
}

// FuzzParseRetryAfter checks that the pause is never negative.
func FuzzParseRetryAfter(f *testing.F) {
	for _, s := range []string{"", "120", "Sat, 21 Nov 2026 08:00:30 GMT", "99999999999999999999999"} {
		f.Add(s)
	}
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, s string) {
		if d := ParseRetryAfter(s, now); d < 0 {
			t.Errorf("ParseRetryAfter(%q) = %s", s, d)
		}
	})
}

// TestExt_HeadersReachTheOutcome checks which fields the fetcher reads in each answer, by the
// clock.
func TestExt_HeadersReachTheOutcome(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // its clock begins on 1 January 2000
		header := []string{"Cache-Control: max-age=60, no-cache", "Retry-After: Sat, 01 Jan 2000 00:10:00 GMT"}
		for status, good := range map[int]bool{200: true, 404: true, 301: true, 429: false, 503: false, 500: false} {
			out, _ := fetchScript(t, Config{}, map[string]string{"*": answer(status, "", header...)})
			if good && (out.MaxAge != time.Minute || !out.HasMaxAge || !out.NoCache || out.RetryAfter != 0) {
				t.Errorf("status %d: %+v", status, out)
			}
			if !good && (out.RetryAfter != 10*time.Minute || out.HasMaxAge || out.NoCache) {
				t.Errorf("status %d: %+v", status, out)
			}
		}
	})
	t.Run("only the last hop's", func(t *testing.T) {
		t.Parallel()
		out, _ := fetchScript(t, Config{}, map[string]string{
			"http://a.example/robots.txt": answer(301, "", "Location: /x", "Cache-Control: max-age=1"),
			"http://a.example/x":          answer(200, "", "Cache-Control: max-age=2"),
		})
		if out.MaxAge != 2*time.Second {
			t.Errorf("max age %s", out.MaxAge)
		}
	})
}
