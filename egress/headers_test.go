package egress

import (
	"bufio"
	"bytes"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"testing"
)

func TestWithoutMembers(t *testing.T) {
	t.Parallel()
	tests := []struct{ in, want []string }{
		{nil, nil},
		{[]string{"cdn; hit"}, []string{"cdn; hit"}},
		{[]string{"crawlgate; hit"}, nil},
		{[]string{"CrawlGate"}, nil},
		{[]string{`"crawlgate"; hit`}, nil},
		{[]string{"cdn, crawlgate; hit , other; a=\"x, crawlgate; y\""}, []string{`cdn, other;a="x, crawlgate; y"`}},
		{[]string{"crawlgate2; hit", "crawlgate"}, []string{"crawlgate2;hit"}},
		{[]string{`cdn; d="unclosed, crawlgate`}, nil},
		{[]string{`cdn; d="a\", crawlgate"`}, []string{`cdn;d="a\", crawlgate"`}},
	}
	for _, tt := range tests {
		if got := withoutMembers(tt.in, "crawlgate"); !slices.Equal(got, tt.want) {
			t.Errorf("withoutMembers(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

// TestPass checks which fields need a permission. Without it they are removed. Similar fields stay,
// and so do the other lines of a field with several lines.
func TestPass(t *testing.T) {
	t.Parallel()
	in := http.Header{
		"Crawler-Max-Price": {"USD 0.01"}, "Crawler-Exact-Price": {"USD 0.01", "USD 0.02"}, "Crawler-Price": {"kept"},
		"Payment-Signature": {"eyJ4"}, "X-Payment": {"eyJ4"}, "Payment-Required": {"kept"},
		"Signature": {"s=:YQ==:"}, "Signature-Input": {"s=()"}, "Signature-Agent": {`"https://a.example"`}, "Signature-Key": {"kept"},
		"Authorization": {"license token", "Basic eDp5", " LICENSE\tx", "License", "L402 a:b", `Payment id="x"`, "lsat c:d"}, "User-Agent": {"Bot/1"},
	}
	price := []string{"Crawler-Max-Price", "Crawler-Exact-Price", "Payment-Signature", "X-Payment"}
	signature := []string{"Signature", "Signature-Input", "Signature-Agent"}
	for _, tt := range []struct {
		pass          Pass
		missing       []string
		authorization []string
		removed       int
	}{
		{Pass{}, slices.Concat(price, signature), []string{"Basic eDp5"}, 14},
		{Pass{Price: true}, signature, in["Authorization"], 3},
		{Pass{Signature: true}, price, []string{"Basic eDp5"}, 11},
		{Pass{Price: true, Signature: true}, nil, in["Authorization"], 0},
	} {
		out, removed := RequestHeader(in, "Crawlgate-", tt.pass)
		for name, values := range in {
			want := values
			if slices.Contains(tt.missing, name) {
				want = nil
			} else if name == "Authorization" {
				want = tt.authorization
			}
			if got, there := out[name]; !slices.Equal(got, want) || there != (want != nil) {
				t.Errorf("%+v: %s is %q, want %q", tt.pass, name, got, want)
			}
		}
		if removed != tt.removed {
			t.Errorf("%+v: %d lines removed, want %d", tt.pass, removed, tt.removed)
		}
	}
}

// FuzzRequestHeader checks that, whatever Connection says, no field of the hop or of the internal
// network leaves, and that the name by which a client is judged stays. Other fields stay unless
// Connection names them. The input is not changed.
func FuzzRequestHeader(f *testing.F) {
	f.Add("Connection: close\r\nUser-Agent: Bot/1\r\n")
	f.Add("Connection: X-A, user-agent , ,\r\nX-A: 1\r\nUser-Agent: Bot/1\r\nX-B: 2\r\n")
	f.Add("connection: te\r\nTE: trailers;q=0.5, x\r\nVia: 1.1 x\r\nX-Forwarded-Anything: 1\r\n")
	f.Add("Crawlgate-Agent: a\r\nProxy-Authorization: b\r\nConnection: \x00\r\n")
	f.Add("PAYMENT-SIGNATURE: x\r\nX-Payment: y\r\nAuthorization: L402 a:b\r\n")
	f.Add("Crawler-Max-Price: USD 1\r\nSignature: s=:YQ==:\r\nAuthorization: License x\r\nAuthorization: Basic y\r\n")
	f.Fuzz(func(t *testing.T, head string) {
		mime, err := textproto.NewReader(bufio.NewReader(strings.NewReader(head + "\r\n"))).ReadMIMEHeader()
		if err != nil {
			return
		}
		in := http.Header(mime)
		before := in.Clone()
		out, removed := RequestHeader(in, "Crawlgate-", Pass{})
		if !maps.EqualFunc(in, before, slices.Equal) {
			t.Fatalf("the input %q became %q", before, in)
		}
		listed := connectionOptions(in)
		for name, values := range out {
			if name == "Te" && slices.Equal(values, []string{"trailers"}) || name == "User-Agent" {
				continue
			}
			if hopByHop[name] || internalFields[name] || listed[name] ||
				strings.HasPrefix(name, "Crawlgate-") || strings.HasPrefix(name, "X-Forwarded-") ||
				signatureFields[name] || priceFields[name] || name == "Authorization" && slices.ContainsFunc(values, pays) {
				t.Fatalf("the request still has %s", name)
			}
		}
		for name, values := range in {
			if !mayLeave(name, "Crawlgate-") || listed[name] {
				continue
			}
			kept := (Pass{}).field(name, values)
			if removed -= len(values) - len(kept); !slices.Equal(out[name], kept) {
				t.Fatalf("%s: %q became %q", name, values, out[name])
			}
		}
		if removed != 0 {
			t.Fatalf("the count of removed lines is off by %d", removed)
		}
		if agent, ok := out["User-Agent"]; !ok || !slices.Equal(agent, in["User-Agent"]) {
			t.Fatalf("User-Agent %q became %q", in["User-Agent"], agent)
		}
		var wire bytes.Buffer
		if err := out.Write(&wire); err != nil {
			t.Fatal(err)
		}
	})
}

func TestIsWebSocket(t *testing.T) {
	t.Parallel()
	tests := []struct {
		h    http.Header
		want bool
	}{
		{http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}}, true},
		{http.Header{"Connection": {"keep-alive, upgrade"}, "Upgrade": {"WebSocket"}}, true},
		{http.Header{"Connection": {"keep-alive"}, "Upgrade": {"websocket"}}, false},
		{http.Header{"Connection": {"Upgrade"}}, false},
		{http.Header{"Connection": {"Upgrade"}, "Upgrade": {"h2c"}}, false},
		{http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket, h2c"}}, false},
		{http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket", "h2c"}}, false},
	}
	for _, tt := range tests {
		if got := isWebSocket(tt.h); got != tt.want {
			t.Errorf("isWebSocket(%v) = %v, want %v", tt.h, got, tt.want)
		}
	}
}

// TestMayTrail checks RFC 9110 section 6.5.1.
func TestMayTrail(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"X-Checksum": true, "Etag": true, "Digest": true, "Server-Timing": true, "Proxy-Status": true, "Authentication-Info": true,
		"Content-Length": false, "Transfer-Encoding": false, "Trailer": false, "Host": false, "If-None-Match": false, "Cache-Control": false,
		"Authorization": false, "Content-Type": false, "Cookie": false, "Set-Cookie": false, "Location": false, "Vary": false, "From": false,
		"User-Agent": false,
	} {
		if got := mayTrail(name); got != want {
			t.Errorf("mayTrail(%s) = %t, want %t", name, got, want)
		}
	}
}

// FuzzResponseFields checks that, whatever Connection says, no field of the hop and none in the
// gateway's name reaches the client. The input is not changed.
func FuzzResponseFields(f *testing.F) {
	f.Add("Connection: X-A\r\nX-A: 1\r\nX-B: 2\r\nAlt-Svc: h3=\":1\"\r\n")
	f.Add("Proxy-Status: crawlgate; error=x, cdn\r\nCache-Status: \"crawlgate\"; hit\r\nCrawlgate-Decision: allow\r\n")
	f.Add("Transfer-Encoding: chunked\r\nTrailer: X\r\nKeep-Alive: 5\r\nUpgrade: h2c\r\nSet-Cookie: a\r\nSet-Cookie: b\r\n")
	f.Fuzz(func(t *testing.T, head string) {
		mime, err := textproto.NewReader(bufio.NewReader(strings.NewReader(head + "\r\n"))).ReadMIMEHeader()
		if err != nil {
			return
		}
		in, out := http.Header(mime), make(http.Header)
		before := in.Clone()
		responseFields(out, in, "crawlgate", "Crawlgate-")
		if !maps.EqualFunc(in, before, slices.Equal) {
			t.Fatalf("the input %q became %q", before, in)
		}
		listed := connectionOptions(in)
		for name, values := range out {
			if hopByHop[name] || listed[name] || name == "Alt-Svc" || strings.HasPrefix(name, "Crawlgate-") {
				t.Errorf("%s reaches the client", name)
			}
			if name == "Proxy-Status" || name == "Cache-Status" {
				if again := withoutMembers(values, "crawlgate"); !slices.Equal(again, values) {
					t.Errorf("%s: %q reaches the client", name, values)
				}
			} else if !slices.Equal(values, in[name]) {
				t.Errorf("%s: %q became %q", name, in[name], values)
			}
		}
	})
}
