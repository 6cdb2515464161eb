package pace

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	v4, mapped, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("::ffff:192.0.2.1"), netip.MustParseAddr("fe80::1%eth0")
	tests := []struct{ name, got, want string }{
		{"host", PerHost.Key("www.example.com", v4), "www.example.com"},
		{"site", PerSite.Key("www.example.com", v4), "site:example.com"},
		{"site of itself", PerSite.Key("example.com", v4), "site:example.com"},
		{"site under a two-label suffix", PerSite.Key("a.b.example.co.uk", v4), "site:example.co.uk"},
		{"site under a private suffix", PerSite.Key("me.github.io", v4), "site:me.github.io"},
		{"site of a public suffix", PerSite.Key("co.uk", v4), "site:co.uk"},
		{"site of one label", PerSite.Key("localhost", v4), "site:localhost"},
		{"site of an IPv4 literal", PerSite.Key("192.0.2.1", v4), "site:192.0.2.1"},
		{"site of an IPv6 literal", PerSite.Key("2001:db8::1", v4), "site:2001:db8::1"},
		{"site in punycode", PerSite.Key("www.xn--bcher-kva.example", v4), "site:xn--bcher-kva.example"},
		{"address", PerAddress.Key("h", v4), "addr:192.0.2.1"},
		{"IPv4 in IPv6", PerAddress.Key("h", mapped), "addr:192.0.2.1"},
		{"zone", PerAddress.Key("h", v6), "addr:fe80::1"},
		{"agent at a host", AgentKey("AcmeCrawl", "example.com"), "agent:AcmeCrawl@example.com"},
		{"zero scope", Scope("").Key("a.example.com", v4), "a.example.com"},
		{"address, not resolved", PerAddress.Key("a.example.com", netip.Addr{}), "a.example.com"},
	}
	for _, tt := range tests {
		if tt.got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, tt.got, tt.want)
		}
	}
	order := []string{AgentKey("a", "h"), PerHost.Key("h", v4), PerSite.Key("h", v4), PerAddress.Key("h", v4)}
	for i := 1; i < len(order); i++ {
		if rank(order[i-1]) >= rank(order[i]) {
			t.Errorf("%s does not come before %s", order[i-1], order[i])
		}
	}
	if rank("2001:db8::1") != rank("h") || rank("add:d::1") != rank("h") {
		t.Error("an IPv6 literal does not have the rank of a host")
	}
}

func TestCrawlDelayApply(t *testing.T) {
	t.Parallel()
	const s = time.Second
	tests := []struct {
		name     string
		policy   CrawlDelay
		declared time.Duration
		want     time.Duration
		ok       bool
	}{
		{"none declared", CrawlDelay{Min: 2 * s, Max: 30 * s}, 0, 0, true},
		{"negative is no delay", CrawlDelay{Min: 2 * s}, -s, 0, true},
		{"within", CrawlDelay{Min: 2 * s, Max: 30 * s}, 5 * s, 5 * s, true},
		{"raised", CrawlDelay{Min: 2 * s, Max: 30 * s}, s / 2, 2 * s, true},
		{"at the maximum", CrawlDelay{Max: 30 * s, Above: Refuse}, 30 * s, 30 * s, true},
		{"clamped", CrawlDelay{Max: 30 * s}, 31 * s, 30 * s, true},
		{"refused", CrawlDelay{Max: 30 * s, Above: Refuse}, 31 * s, 31 * s, false},
		{"honored", CrawlDelay{Max: 30 * s, Above: Honor}, 3600 * s, 3600 * s, true},
		{"no maximum", CrawlDelay{Above: Refuse}, 3600 * s, 3600 * s, true},
		{"zero policy", CrawlDelay{}, 7 * s, 7 * s, true},
		{"least above the longest", CrawlDelay{Min: 40 * s, Max: 30 * s}, 5 * s, 30 * s, true},
	}
	for _, tt := range tests {
		if got, ok := tt.policy.Apply(tt.declared); got != tt.want || ok != tt.ok {
			t.Errorf("%s: %s, %v; want %s, %v", tt.name, got, ok, tt.want, tt.ok)
		}
	}
}

func TestParseRate(t *testing.T) {
	t.Parallel()
	good := []struct {
		in       string
		interval time.Duration
	}{
		{"off", 0},
		{"5/s", 200 * time.Millisecond},
		{"1/s", time.Second},
		{"30/m", 2 * time.Second},
		{"100/h", 36 * time.Second},
		{"1/10s", 10 * time.Second},
		{"1/1m30s", 90 * time.Second},
		{"3/s", 333_333_334},
		{"2/500ms", 250 * time.Millisecond},
		{"1/60s", time.Minute},
		{"1000000/s", time.Microsecond},
		{"1/24h", 24 * time.Hour},
		{"007/s", 142_857_143},
	}
	for _, tt := range good {
		r, err := ParseRate(tt.in)
		if err != nil || r != tt.interval {
			t.Errorf("ParseRate(%q) = one every %s, %v; want one every %s", tt.in, r, err, tt.interval)
		}
	}
	bad := []struct{ in, err string }{
		{"", "want COUNT/TIME"},
		{"5", "want COUNT/TIME"},
		{"Off", "want COUNT/TIME"},
		{"/s", "not a whole number"},
		{"5/", "time after / is missing"},
		{"0/s", "count is 0"},
		{"-1/s", "not a whole number"},
		{"+1/s", "not a whole number"},
		{"0.5/s", "write 1/2s"},
		{"5 /s", "not a whole number"},
		{"99999999999999999999/s", "not a whole number"},
		{"1000001/s", "above 1000000"},
		{"1/0s", "not above zero"},
		{"1/-1s", "not above zero"},
		{"1/+1s", "not s, m, h or a duration"},
		{"1/sec", "not s, m, h or a duration"},
		{"1/d", "not s, m, h or a duration"},
		{"1/25h", "above 24h0m0s"},
		{"5/s/s", "not s, m, h or a duration"},
		{"1000000/1ms", "more than one request every 1µs"},
	}
	for _, tt := range bad {
		if r, err := ParseRate(tt.in); err == nil || !strings.Contains(err.Error(), tt.err) {
			t.Errorf("ParseRate(%q) = %v, %v; want an error with %q", tt.in, r, err, tt.err)
		}
	}
}

func FuzzParseRate(f *testing.F) {
	for _, s := range []string{"off", "5/s", "1/1m30s", "0/s", "1000000/1ms", "1/10s/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRate(s)
		if err != nil {
			return
		}
		if s != "off" && r < minInterval {
			t.Errorf("%q has the interval %s", s, r)
		}
	})
}

func TestRefused(t *testing.T) {
	t.Parallel()
	err := &Refused{Key: "h", Reason: ReasonWait, RetryAfter: 12 * time.Second}
	if want := "pacing h: refused (wait), retry after 12s"; err.Error() != want {
		t.Errorf("Error = %q, want %q", err, want)
	}
}

func TestLimitTerms(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		limit Limit
		want  terms
	}{
		{"zero", Limit{}, terms{}},
		{"negative", Limit{Interval: -1, Burst: -1, Delay: -1, Concurrency: -1}, terms{}},
		{"burst of one", Limit{Interval: 5, Burst: 1}, terms{interval: 5}},
		{"burst", Limit{Interval: 5, Burst: 4}, terms{interval: 5, tolerance: 15}},
		{"burst without a rate", Limit{Burst: 4, Delay: 3}, terms{gap: 3}},
		{"beyond counting", Limit{Interval: 1 << 62, Burst: 1 << 62, Delay: 1 << 62}, terms{interval: longest, tolerance: longest, gap: longest}},
		{"huge burst", Limit{Interval: time.Second, Burst: 1 << 62}, terms{interval: time.Second, tolerance: longest}},
	}
	for _, tt := range tests {
		if got := tt.limit.terms(); got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}
