package fetch

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestExt_SecondTry checks that a fetch that broke before the site's answer is repeated once, at
// once, and that no other fetch is.
func TestExt_SecondTry(t *testing.T) {
	t.Parallel()
	dial := func(err error) error { return &net.OpError{Op: "dial", Err: err} }
	ok := answer(200, rules)
	for _, tt := range []struct {
		name  string
		first any // an error, or an answer
		asked int
	}{
		{"reset", syscall.ECONNRESET, 2},
		{"reset while connecting", dial(syscall.ECONNRESET), 2},
		{"closed", io.EOF, 2},
		{"closed in the header", "HTTP/1.1 200 OK\r\nContent-Ty", 2},
		{"stream reset", errors.New("stream error: stream ID 1; REFUSED_STREAM"), 2},
		{"body too short", ok[:len(ok)-5], 2},
		{"broken chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 2},
		{"no HTTP", "220 mail.example ESMTP\r\n\r\n", 2},

		{"rules", ok, 1},
		{"status 404", answer(404, ""), 1},
		{"status 429", answer(429, ""), 1},
		{"status 503", answer(503, ""), 1},
		{"status 206", answer(206, rules), 1},
		{"status 304", answer(304, ""), 1},
		{"broken coding", answer(200, "\x1f\x8b\x08rubbish", "Content-Encoding: gzip"), 1},
		{"Location that is no URL", to("http://[::1/"), 1},
		{"refused", dial(syscall.ECONNREFUSED), 1},
		{"no way", dial(syscall.EHOSTUNREACH), 1},
		{"no such name", dial(&net.DNSError{Err: "no such host", IsNotFound: true}), 1},
		{"TLS", errors.New("tls: handshake failure"), 1},
		{"no descriptors", dial(syscall.EMFILE), 1},
		{"forbidden", dial(guardError(CauseForbiddenAddress)), 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, failing := range []bool{false, true} {
				asked := 0
				f := New(Config{Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
					asked++
					raw := ok
					if asked == 1 {
						if err, isErr := tt.first.(error); isErr {
							return nil, err
						}
						raw = tt.first.(string)
					}
					return (&script{tb: t, answers: map[string]string{"*": raw}}).RoundTrip(req)
				})})
				out := Try(failing, func() Outcome { return f.Fetch(t.Context(), mustKey(t, "http://a.example"), nil) })
				checkOutcome(t, out)
				wantAsked := tt.asked
				if failing {
					wantAsked = 1
				}
				if asked != wantAsked || out.Retried != (asked == 2) {
					t.Errorf("failing %v: %d requests, want %d; retried %v", failing, asked, wantAsked, out.Retried)
				}
				if asked == 2 && (out.Kind != KindRules || !strings.HasPrefix(out.Detail, "at the second try, after: ")) {
					t.Errorf("second try: %s (%s)", out.Kind, out.Detail)
				}
			}
		})
	}
}

// TestExt_SecondTryIsCounted checks that the record counts both tries, with the pause after a first
// failure.
func TestExt_SecondTryIsCounted(t *testing.T) {
	t.Parallel()
	broken := Outcome{Cause: CauseReset, Retried: true}
	once := after(Policy{}, 0*hour, Outcome{Cause: CauseReset})
	r := after(Policy{}, 0*hour, broken)
	if r.Attempts != 2 || !r.NextAttempt.Equal(once.NextAttempt) || r.Check() != nil {
		t.Errorf("%d attempts, the next at %s; want 2 and %s", r.Attempts, r.NextAttempt, once.NextAttempt)
	}
	if r = after(Policy{}, 0*hour, broken, hour, Outcome{Cause: CauseReset}); r.Attempts != 3 {
		t.Errorf("%d attempts after another failure, want 3", r.Attempts)
	}
	good := Outcome{Kind: KindRules, Body: []byte(rules), Retried: true, Detail: "at the second try, after: x"}
	if r = after(Policy{}, 0*hour, good); r.Attempts != 0 || r.Failing() || r.Detail != good.Detail || r.Check() != nil {
		t.Errorf("the record after a good second try is %+v", r)
	}
}

// TestExt_TriesAreOneRetrieval checks that the outcome has the time of both tries.
func TestExt_TriesAreOneRetrieval(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		started := time.Now()
		out := Try(false, func() Outcome {
			at := time.Now()
			time.Sleep(3 * time.Second)
			return Outcome{Cause: CauseReset, Started: at, Duration: 3 * time.Second}
		})
		if !out.Retried || !out.Started.Equal(started) || out.Duration != 6*time.Second {
			t.Errorf("the outcome is %+v, want both tries", out)
		}
	})
}
