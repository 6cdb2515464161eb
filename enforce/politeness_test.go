package enforce

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"reflect"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/pace"
)

func TestPolitenessRequest(t *testing.T) {
	t.Parallel()
	clamp := pace.CrawlDelay{Min: 2 * time.Second, Max: 30 * time.Second}
	address := netip.MustParseAddr("192.0.2.1")
	for name, tt := range map[string]struct {
		politeness Politeness
		delay      time.Duration // the group's Crawl-delay
		interval   time.Duration // the agent's
		maxWait    *time.Duration
		address    netip.Addr
		want       pace.Request
		wantErr    string
	}{
		"rate, burst and concurrency of the operator": {
			politeness: Politeness{Interval: time.Second / 5, Burst: 3, Concurrency: 8, Wait: time.Minute, CrawlDelay: clamp},
			want:       pace.Request{Limit: pace.Limit{Key: "example.com", Interval: 200 * time.Millisecond, Burst: 3, Concurrency: 8}, MaxWait: time.Minute},
		},
		"no wait is not the pacer's default": {want: pace.Request{Limit: pace.Limit{Key: "example.com"}, MaxWait: -1}},
		"the agent's wait goes before": {
			politeness: Politeness{Wait: time.Minute}, maxWait: new(2 * time.Minute),
			want: pace.Request{Limit: pace.Limit{Key: "example.com"}, MaxWait: 2 * time.Minute},
		},
		"a zero max_wait applies too": {
			politeness: Politeness{Wait: time.Minute}, maxWait: new(time.Duration),
			want: pace.Request{Limit: pace.Limit{Key: "example.com"}, MaxWait: -1},
		},
		"the delay within the limits": {
			politeness: Politeness{CrawlDelay: clamp}, delay: 10 * time.Second,
			want: pace.Request{Limit: pace.Limit{Key: "example.com", Delay: 10 * time.Second}, MaxWait: -1},
		},
		"raised to the least": {
			politeness: Politeness{CrawlDelay: clamp}, delay: time.Second,
			want: pace.Request{Limit: pace.Limit{Key: "example.com", Delay: 2 * time.Second}, MaxWait: -1},
		},
		"clamped": {
			politeness: Politeness{CrawlDelay: clamp}, delay: time.Hour,
			want: pace.Request{Limit: pace.Limit{Key: "example.com", Delay: 30 * time.Second}, MaxWait: -1},
		},
		"honored": {
			politeness: Politeness{CrawlDelay: pace.CrawlDelay{Max: time.Second, Above: pace.Honor}}, delay: time.Hour,
			want: pace.Request{Limit: pace.Limit{Key: "example.com", Delay: time.Hour}, MaxWait: -1},
		},
		"refused": {
			politeness: Politeness{CrawlDelay: pace.CrawlDelay{Max: 90 * time.Second, Above: pace.Refuse}}, delay: time.Hour,
			wantErr: "Crawl-delay 1h is above the limit of 1m30s",
		},
		"agent interval": {
			interval: time.Second,
			want: pace.Request{Limit: pace.Limit{Key: "example.com"}, MaxWait: -1, Also: []pace.Limit{
				{Key: "agent:bot@example.com", Interval: time.Second, Burst: 1},
			}},
		},
		"several clocks, the agent's last": {
			politeness: Politeness{Per: []pace.Scope{pace.PerSite, pace.PerAddress, pace.PerHost}, Burst: 2}, interval: time.Second, address: address,
			want: pace.Request{Limit: pace.Limit{Key: "site:example.com", Burst: 2}, MaxWait: -1, Also: []pace.Limit{
				{Key: "addr:192.0.2.1", Burst: 2}, {Key: "example.com", Burst: 2}, {Key: "agent:bot@example.com", Interval: time.Second, Burst: 1},
			}},
		},
		"a name that does not resolve": {
			politeness: Politeness{Per: []pace.Scope{pace.PerAddress}},
			want:       pace.Request{Limit: pace.Limit{Key: "example.com"}, MaxWait: -1},
		},
	} {
		if tt.politeness.Per == nil {
			tt.politeness.Per = []pace.Scope{pace.PerHost}
		}
		tt.want.Agent = "bot"
		d := Decision{Agent: "bot", Origin: mustOrigin(t, "https://example.com:8443"), CrawlDelay: tt.delay, interval: tt.interval, maxWait: tt.maxWait}
		got, err := tt.politeness.Request(d, func() netip.Addr { return tt.address })
		if tt.wantErr != "" {
			if err == nil || err.Error() != tt.wantErr {
				t.Errorf("%s: error %v, want %q", name, err, tt.wantErr)
			}
		} else if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, tt.want)
		}
	}
}

// TestPolitenessResolvesOnlyForAddresses checks that clocks by other keys do not resolve the name.
func TestPolitenessResolvesOnlyForAddresses(t *testing.T) {
	t.Parallel()
	p := Politeness{Per: []pace.Scope{pace.PerHost, pace.PerSite}}
	if _, err := p.Request(Decision{}, func() netip.Addr { t.Error("the name was resolved"); return netip.Addr{} }); err != nil {
		t.Error(err)
	}
}

// TestAgentPaceReachesTheRequest checks that an agent's interval and wait get from the
// configuration to the clock.
func TestAgentPaceReachesTheRequest(t *testing.T) {
	t.Parallel()
	id := mustIdentifier(t, IdentifierConfig{Agents: []Agent{{Name: "NewsBot", Interval: time.Minute, MaxWait: new(time.Hour)}}})
	e := newEnforcer(siteOf(rules(robots), defaults), nil, nil)
	d := ask(t, e, id.Identify(t.Context(), Sender{UserAgent: "NewsBot/1"}), "http://example.com/")
	request, err := Politeness{Per: []pace.Scope{pace.PerHost}}.Request(d, nil)
	want := []pace.Limit{{Key: "agent:NewsBot@example.com", Interval: time.Minute, Burst: 1}}
	if err != nil || !reflect.DeepEqual(request.Also, want) || request.MaxWait != time.Hour {
		t.Errorf("%+v, %v; want %+v, held for an hour", request, err, want)
	}
}

func TestRefuseSlot(t *testing.T) {
	t.Parallel()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	refused := func(r pace.Reason) error {
		return errors.Join(errors.New("around it"), &pace.Refused{Reason: r, RetryAfter: 1500 * time.Millisecond})
	}
	strict := Politeness{CrawlDelay: pace.CrawlDelay{Max: 30 * time.Second, Above: pace.Refuse}}
	_, tooLong := strict.Request(Decision{CrawlDelay: 90 * time.Minute}, nil)
	for name, tt := range map[string]struct {
		ctx  context.Context //nolint:containedctx // a row has the context of its request
		err  error
		want Decision
	}{
		"too late":       {t.Context(), refused(pace.ReasonWait), Decision{Reason: ReasonRateLimited, Detail: "a retry may succeed in 2s", RetryAfter: 2 * time.Second}},
		"also when gone": {gone, refused(pace.ReasonWait), Decision{Reason: ReasonRateLimited, Detail: "a retry may succeed in 2s", RetryAfter: 2 * time.Second}},
		"blocked":        {t.Context(), refused(pace.ReasonBlocked), Decision{Reason: ReasonBackoff, Detail: "a retry may succeed in 2s", RetryAfter: 2 * time.Second}},
		"places":         {t.Context(), refused(pace.ReasonConcurrency), Decision{Reason: ReasonConcurrency, Detail: "a retry may succeed in 2s", RetryAfter: 2 * time.Second}},
		"queue":          {t.Context(), refused(pace.ReasonQueueFull), Decision{Reason: ReasonQueueFull, Detail: "a retry may succeed in 2s", RetryAfter: 2 * time.Second}},
		"waiters":        {t.Context(), refused(pace.ReasonWaitersFull), Decision{Reason: ReasonOverloaded, Detail: "a retry may succeed in 2s", RetryAfter: 2 * time.Second}},
		"clocks":         {t.Context(), refused(pace.ReasonOverflow), Decision{Reason: ReasonOverloaded, Detail: "a retry may succeed in 2s", RetryAfter: 2 * time.Second}},
		"unknown":        {t.Context(), refused("new"), Decision{Reason: ReasonInternal, Detail: "a retry may succeed in 2s", RetryAfter: 2 * time.Second}},
		"Crawl-delay": {
			t.Context(), tooLong,
			Decision{Reason: ReasonCrawlDelay, Detail: "Crawl-delay 1h30m is above the limit of 30s"},
		},
		"the client left": {gone, context.Canceled, Decision{Reason: ReasonCanceled, Detail: "the client left while its request was held"}},
		"a fault":         {t.Context(), errors.New("broken"), Decision{Reason: ReasonInternal, Detail: "broken"}},
	} {
		d := Decision{Allowed: true, Line: 7}.RefuseSlot(tt.ctx, tt.err)
		if d.Allowed || d.Line != 7 || d.Reason != tt.want.Reason || d.Detail != tt.want.Detail || d.RetryAfter != tt.want.RetryAfter {
			t.Errorf("%s: %+v, want %+v", name, d, tt.want)
		}
	}
	for after, want := range map[time.Duration]int64{0: 1, 1: 1, time.Second: 1, time.Second + 1: 2, time.Minute: 60} {
		d := Decision{Allowed: true}.RefuseSlot(t.Context(), &pace.Refused{Reason: pace.ReasonWait, RetryAfter: after})
		if RetrySeconds(d.RetryAfter) != want {
			t.Errorf("%s becomes %s, want %d s", after, d.RetryAfter, want)
		}
	}
}

func TestAsksForPause(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		status int
		after  string
		pause  time.Duration
		asked  bool
	}{
		{429, "", 0, true},
		{503, "120", 2 * time.Minute, true},
		{503, now.Add(time.Hour).Format(http.TimeFormat), time.Hour, true},
		{429, "soon", 0, true},
		{430, "", 0, true}, // shopify.dev/docs/api/usage/response-codes
		{430, "120", 2 * time.Minute, true},
		{431, "120", 0, false},
		{200, "120", 0, false},
		{500, "120", 0, false},
		{502, "120", 0, false},
		{403, "", 0, false},
	} {
		pause, asked := AsksForPause(tt.status, http.Header{"Retry-After": {tt.after}}, now)
		if pause != tt.pause || asked != tt.asked {
			t.Errorf("%d, Retry-After %q: pause %s, %t; want %s, %t", tt.status, tt.after, pause, asked, tt.pause, tt.asked)
		}
	}
}

func TestMayBePlain(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		authority string
		reason    Reason
		cause     fetch.Cause
		want      bool
	}{
		{"example.com:443", ReasonConnectDenied, "", false},
		{"example.com:80", ReasonConnectDenied, "", true},
		{"example.com:8080", ReasonConnectDenied, "", true},
		{"example.com:8080", ReasonUnreachable, fetch.CauseTLS, true},
		{"example.com:8080", ReasonUnreachable, fetch.CauseProtocol, true},
		{"example.com:8080", ReasonUnreachable, fetch.CauseReset, true},
		{"example.com:8080", ReasonUnreachable, fetch.CauseTimeout, false},
		{"example.com:443", ReasonUnreachable, fetch.CauseTLS, false},
		{"example.com:8080", ReasonTunnelRestricted, "", false},
		{"example.com:8080", ReasonKillSwitch, "", false},
		{"example.com:8080", ReasonOperatorDeny, "", false},
	} {
		d := Decision{Reason: tt.reason, Cause: tt.cause, Origin: mustOrigin(t, "https://"+tt.authority)}
		if d.MayBePlain() != tt.want {
			t.Errorf("%s, %s, %s: MayBePlain = %t", tt.authority, tt.reason, tt.cause, !tt.want)
		}
	}
}
