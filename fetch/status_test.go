package fetch

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// statusWant repeats docs/status-table.md: the meaning of each status without a Location and with
// the given body.
func statusWant(status int) want {
	switch {
	case status < 200:
		return want{KindUnreachable, CauseReset} // RFC 9110 15.2: no final answer
	case status == 206:
		return want{KindUnreachable, CauseProtocol} // RFC 9110 15.3.7: the request had no range
	case status < 300:
		return want{KindRules, ""} // RFC 9309 2.3.1.1
	case status == 304:
		return want{KindUnreachable, CauseProtocol} // RFC 9110 15.4.5: the request had no condition
	case status < 400:
		return want{KindAbsent, CauseRedirects} // RFC 9309 2.3.1.2, no Location
	case status == 407:
		return want{KindUnreachable, CauseProtocol} // RFC 9110 15.5.8: only a proxy may send it
	case status == 429, status == 430:
		return want{KindUnreachable, CauseStatus} // Google's specification; 430 is Shopify's 429
	case status < 500:
		return want{KindAbsent, CauseStatus} // RFC 9309 2.3.1.3
	case status < 600:
		return want{KindUnreachable, CauseStatus} // RFC 9309 2.3.1.4
	default:
		return want{KindUnreachable, CauseProtocol} // RFC 9110 15: invalid
	}
}

// TestRFC9309_2_3_1_EveryStatus fetches every status of three digits from a real server.
func TestRFC9309_2_3_1_EveryStatus(t *testing.T) {
	t.Parallel()
	const body = "User-agent: *\nDisallow: /private\n"
	addr := rawServer(t, func(conn net.Conn) {
		req, err := http.ReadRequest(bufio.NewReader(conn))
		if err != nil {
			return
		}
		status, _ := strconv.Atoi(strings.TrimPrefix(req.UserAgent(), "status/"))
		switch {
		case status >= 100 && status < 200, status == 204, status == 304: // have no body
			say(conn, fmt.Sprintf("HTTP/1.1 %03d Reason\r\n\r\n", status))
		default:
			say(conn, fmt.Sprintf("HTTP/1.1 %03d Reason\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", status, len(body), body))
		}
	})
	tr := realTransport(t)
	o := mustOrigin(t, "http://"+addr)
	for status := range 1000 {
		out := New(Config{Transport: tr, Soft404: true, UserAgent: fmt.Sprintf("status/%d", status)}).Fetch(t.Context(), Key{Origin: o}, nil)
		w := statusWant(status)
		wantStatus, wantBody := status, body
		switch {
		case status < 100: // not a status of HTTP
			w = want{KindUnreachable, CauseProtocol}
		case status == 101: // net/http returns this one as an answer
			w = want{KindUnreachable, CauseProtocol}
		case status < 200:
			wantStatus = 0
		}
		if status == 204 || w.kind != KindRules {
			wantBody = ""
		}
		if out.Kind != w.kind || out.Cause != w.cause || out.Status != wantStatus || string(out.Body) != wantBody {
			t.Errorf("status %03d: %s/%s (%s), status %d, body %q; want %s/%s", status,
				out.Kind, out.Cause, out.Detail, out.Status, out.Body, w.kind, w.cause)
		}
		checkOutcome(t, out)
	}
}

// TestRFC9309_2_3_1_2_EveryRedirectStatus checks which statuses a Location directs.
func TestRFC9309_2_3_1_2_EveryRedirectStatus(t *testing.T) {
	t.Parallel()
	for status := 200; status <= 599; status++ {
		out, s := fetchScript(t, Config{}, map[string]string{
			"http://a.example/robots.txt": answer(status, "", "Location: http://b.example/there"),
			"http://b.example/there":      answer(200, "Disallow:"),
		})
		follow := status >= 300 && status <= 399 && status != 304 && status != 305
		if followed := len(s.asked) == 2; followed != follow {
			t.Errorf("status %d with a Location: followed is %v, want %v", status, followed, follow)
		}
		if !follow {
			statusWant(status).check(t, out)
			continue
		}
		want{KindRules, ""}.check(t, out)
	}
}

func TestExt_ZeroOutcomeIsUnreachable(t *testing.T) {
	t.Parallel()
	if got := (Outcome{}).Kind; got != KindUnreachable {
		t.Errorf("zero Outcome is %s", got)
	}
	if got := Kind(77).String(); got != "unreachable" {
		t.Errorf("Kind(77) = %q", got)
	}
}

// TestRFC9110_15_2_Informational checks that a bounded number of 1xx before the answer is ignored.
func TestRFC9110_15_2_Informational(t *testing.T) {
	t.Parallel()
	interim := "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
	t.Run("a few", func(t *testing.T) {
		t.Parallel()
		addr := rawServer(t, replying("HTTP/1.1 100 Continue\r\n\r\n"+interim+answer(200, "x", "Connection: close")))
		want{KindRules, ""}.check(t, fetchReal(t, "http://"+addr))
	})
	t.Run("without end", func(t *testing.T) {
		t.Parallel()
		addr := rawServer(t, func(conn net.Conn) {
			if _, err := http.ReadRequest(bufio.NewReader(conn)); err != nil {
				return
			}
			for {
				if _, err := io.WriteString(conn, interim); err != nil {
					return
				}
			}
		})
		want{KindUnreachable, CauseProtocol}.check(t, fetchReal(t, "http://"+addr))
	})
}
