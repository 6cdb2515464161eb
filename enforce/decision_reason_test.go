package enforce

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/internal/escape"
)

func TestReasonsAreClosedAndNamed(t *testing.T) {
	t.Parallel()
	seen := make(map[Reason]bool)
	for _, r := range Reasons() {
		if seen[r] {
			t.Errorf("%s is in the set twice", r)
		}
		seen[r] = true
		if !regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`).MatchString(string(r)) {
			t.Errorf("%q is not snake_case", r)
		}
		if !r.Valid() {
			t.Errorf("Valid(%s) = false", r)
		}
		if !slices.Contains([]effect{denies, spares, allows, fails}, r.Info().Effect) {
			t.Errorf("%s: effect %q is unknown", r, r.Info().Effect)
		}
		if want := strings.ReplaceAll(string(r), "_", "-"); r.Slug() != want {
			t.Errorf("Slug(%s) = %q, want %q", r, r.Slug(), want)
		}
		if r.Info().Title == "" || strings.HasSuffix(r.Info().Title, ".") || escape.ASCII(r.Info().Title, 80) != r.Info().Title {
			t.Errorf("%s: title %q", r, r.Info().Title)
		}
		if noHint := r.Allows() || r == ReasonCanceled; noHint != (r.Info().Hint == "") {
			t.Errorf("%s: hint %q", r, r.Info().Hint)
		}
		if r.Allows() && (r.Hard() || r.Failure() || r.Info().ProxyError != "" || r.Info().Status != http.StatusOK) {
			t.Errorf("%s allows, but is hard, is a failure, or has an error", r)
		}
	}
}

func TestStatusOfEachReason(t *testing.T) {
	t.Parallel()
	want := map[int][]Reason{
		400: {ReasonBadTarget, ReasonBadRequest, "client_body"},
		403: {
			ReasonPreferenceDenied, ReasonDisallowed, ReasonUnreachable, ReasonRobotsForbidden, ReasonPending, ReasonTunnelRestricted,
			ReasonConnectDenied, ReasonKillSwitch, ReasonOperatorDeny, ReasonUnidentified, ReasonAgentMismatch,
			ReasonUserAgentConflict, ReasonAmbiguousAgent, ReasonForbiddenAddress, ReasonForbiddenPort,
			ReasonOwnListener, ReasonCrawlDelay, ReasonClientNotAllowed,
			ReasonAgentHost, ReasonAgentPort, ReasonAgentMethod, ReasonAgentExpired,
		},
		405: {ReasonMethod},
		407: {ReasonCredentialsMissing, ReasonCredentialsWrong},
		408: {"client_timeout"},
		413: {"client_too_large"},
		421: {ReasonMisdirected},
		429: {ReasonRateLimited, ReasonConcurrency, ReasonQueueFull, ReasonOverloaded, ReasonBackoff, ReasonBudget, ReasonWindow, ReasonVisitTime},
		499: {ReasonCanceled},
		500: {ReasonInternal},
		414: {ReasonURLSize},
		503: {ReasonCredentialsBusy, ReasonNotReady, ReasonAgentLimit, ReasonEvidenceUnavailable, ReasonLogUnavailable},
		504: {"dns_timeout", "connection_timeout", "timeout", "stalled"},
	}
	for _, r := range Reasons() {
		status := 502
		switch {
		case r.Allows():
			status = 200
		default:
			for s, reasons := range want {
				if slices.Contains(reasons, r) {
					status = s
				}
			}
		}
		if r.Info().Status != status {
			t.Errorf("%s: status %d, want %d", r, r.Info().Status, status)
		}
		if status == 502 && !r.Failure() {
			t.Errorf("%s has status 502, but is not a failure", r)
		}
	}
}

// Clients retry 502, 503 and 504 at once and without end, so no refusal by rules may have such a
// status. Most failures must not have 503 either, which means that the gateway is too busy or has
// not started.
func TestClients15JudgementsAreNotRetried(t *testing.T) {
	t.Parallel()
	for _, r := range Reasons() {
		passing := r == ReasonCredentialsBusy || r == ReasonNotReady || r == ReasonAgentLimit || r == ReasonEvidenceUnavailable ||
			r == ReasonLogUnavailable
		if s := r.Info().Status; s == 503 && !passing || !r.Failure() && s >= 500 {
			t.Errorf("%s has status %d, which clients retry", r, s)
		}
	}
}

// TestEndOfEachReason checks that a refusal that ends by itself has Retry-After (RFC 9110 section
// 10.2.3). A refusal that holds as long as a robots.txt has its end as a Date (RFC 9651 section
// 3.3.7), which invites no client to try again.
func TestEndOfEachReason(t *testing.T) {
	t.Parallel()
	const (
		never   = "does not end by itself"
		exactly = "ends by itself, and the decision knows when"
		someday = "ends by itself, and nobody knows when"
		record  = "holds as long as the site's robots.txt is used"
	)
	ends := map[Reason]string{
		ReasonDisallowed: record, ReasonPreferenceDenied: record, ReasonTunnelRestricted: record, ReasonCrawlDelay: record,
		ReasonRobotsForbidden: record + exactly, ReasonUnreachable: exactly + someday, ReasonPending: someday,
		ReasonRateLimited: exactly, ReasonQueueFull: exactly, ReasonBackoff: exactly, ReasonBudget: exactly, ReasonOverloaded: exactly, ReasonConcurrency: exactly, ReasonWindow: exactly, ReasonVisitTime: exactly,
		ReasonCredentialsBusy: someday, ReasonNotReady: someday, ReasonAgentLimit: someday, ReasonEvidenceUnavailable: someday,
		ReasonLogUnavailable: someday, "exhausted": someday, "upstream_proxy": someday,
		"dns": someday, "dns_timeout": someday, "connection_refused": someday, "connection_timeout": someday, "unroutable": someday,
		"unavailable": someday, "timeout": someday, "stalled": someday, "reset": someday, "incomplete": someday,
		// These need an action of the operator, the site's owner, or the person behind the crawler.
		ReasonConnectDenied: never, ReasonKillSwitch: never, ReasonOperatorDeny: never, ReasonClientNotAllowed: never, ReasonUnidentified: never,
		ReasonCredentialsMissing: never, ReasonCredentialsWrong: never, ReasonAgentMismatch: never, ReasonUserAgentConflict: never,
		ReasonAmbiguousAgent: never, ReasonForbiddenAddress: never, ReasonForbiddenPort: never, ReasonOwnListener: never, ReasonBadTarget: never,
		ReasonMethod: never, ReasonBadRequest: never, ReasonURLSize: never, ReasonMisdirected: never, ReasonCanceled: never,
		"client_timeout": never, "client_body": never, "client_too_large": never, "loop": never, "tls_certificate": never, "tls_alert": never,
		"tls": never, "transfer_coding": never, "header_size": never, "listing_size": never, "protocol": never, "upgrade": never,
		ReasonInternal: never, ReasonAgentHost: never, ReasonAgentPort: never, ReasonAgentMethod: never, ReasonAgentExpired: never,
	}
	for _, r := range refusing(t) {
		is := func(kind string) bool { return strings.Contains(ends[r], kind) }
		if ends[r] == "" || is(record) != r.Info().Recorded || is(someday) != (r.RetryAfter() > 0) {
			t.Errorf("%s %s: recorded %t, Retry-After %s", r, ends[r], r.Info().Recorded, r.RetryAfter())
		}
		d, asked := sample(t, r)
		if r == ReasonPreferenceDenied {
			d.quoted.line = 4 // otherwise the reason came from the answer
		}
		h := Render(d, asked).Header
		if has := h.Get("Retry-After") != ""; has != (is(exactly) || is(someday)) {
			t.Errorf("%s %s: Retry-After %q", r, ends[r], h.Get("Retry-After"))
		}
		until := fmt.Sprintf("; until=@%d", d.FreshUntil.Unix())
		if strings.HasSuffix(h.Get(HeaderDecision), until) != is(record) || strings.Contains(h.Get(HeaderDecision), "until") != is(record) {
			t.Errorf("%s %s: %q, want %q", r, ends[r], h.Get(HeaderDecision), until)
		}
		d.FreshUntil = time.Time{}
		if v := d.Header(); strings.Contains(v, "until") {
			t.Errorf("%s without a record: %q", r, v)
		}
	}
	d, _ := sample(t, ReasonPreferenceDenied)
	if v := d.Header(); strings.Contains(v, "until") {
		t.Errorf("a refusal by a page, which may change, has an end: %q", v)
	}
}

// Error types are in the registry of RFC 9209 section 2.3.
func TestRFC9209_2_3_ErrorTypes(t *testing.T) {
	t.Parallel()
	registered := strings.Fields(`dns_timeout dns_error destination_not_found destination_unavailable
		destination_ip_prohibited destination_ip_unroutable connection_refused connection_terminated
		connection_timeout connection_read_timeout connection_write_timeout connection_limit_reached
		tls_protocol_error tls_certificate_error tls_alert_received http_request_error http_request_denied
		http_response_incomplete http_response_header_section_size http_response_header_size
		http_response_body_size http_response_trailer_section_size http_response_trailer_size
		http_response_transfer_coding http_response_content_coding http_response_timeout http_upgrade_failed
		http_protocol_error proxy_internal_response proxy_internal_error proxy_configuration_error
		proxy_loop_detected`)
	for _, r := range Reasons() {
		if none := r.Allows() || r == ReasonCanceled; none {
			if r.Info().ProxyError != "" {
				t.Errorf("%s allows, but has the error type %q", r, r.Info().ProxyError)
			}
		} else if !slices.Contains(registered, r.Info().ProxyError) {
			t.Errorf("%s: error type %q is not registered", r, r.Info().ProxyError)
		}
	}
}

func TestUnknownReasonIsInternal(t *testing.T) {
	t.Parallel()
	for _, r := range []Reason{"", "allowed", "no-rule"} {
		if r.Valid() || r.Allows() || !r.Failure() || !r.Hard() || r.Info().Status != 500 || r.Slug() != "internal" {
			t.Errorf("the unknown reason %q is not treated as internal", r)
		}
	}
}

func TestHardReasonsHoldInEveryMode(t *testing.T) {
	t.Parallel()
	soft := []Reason{
		ReasonDisallowed, ReasonUnreachable, ReasonRobotsForbidden, ReasonPending, ReasonTunnelRestricted,
		ReasonUnidentified, ReasonCredentialsMissing, ReasonAgentMismatch, ReasonUserAgentConflict, ReasonAmbiguousAgent,
		ReasonPreferenceDenied, ReasonVisitTime,
	}
	for _, r := range Reasons() {
		if want := !r.Allows() && !slices.Contains(soft, r); r.Hard() != want {
			t.Errorf("%s: hard %t, want %t", r, r.Hard(), want)
		}
	}
}
