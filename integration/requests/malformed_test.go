package requests

import (
	"errors"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// malformed is a request that must not be served. SITE stands for the authority of a site that
// exists and would answer.
type malformed struct {
	name   string
	raw    string
	status int
	reason enforce.Reason // "" if net/http cannot read it, so that the access log has no line
}

// malformedRequests are requests that violate RFC 9110 and 9112, or whose target has no canonical
// spelling.
var malformedRequests = []malformed{
	// The request line.
	{"no method", " http://SITE/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"no version", "GET http://SITE/\r\nHost: SITE\r\n\r\n", 400, ""},
	{"no target", "GET HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"an empty target", "GET  HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"an invalid version", "GET http://SITE/ HTTP/one\r\nHost: SITE\r\n\r\n", 400, ""},
	{"a version in small letters", "GET http://SITE/ http/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"a version of one digit", "GET http://SITE/ HTTP/1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"a version of three digits", "GET http://SITE/ HTTP/1.10\r\nHost: SITE\r\n\r\n", 400, ""},
	{"a version with a sign", "GET http://SITE/ HTTP/+1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"another protocol", "GET http://SITE/ HTTPS/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"a version that nobody speaks", "GET http://SITE/ HTTP/9.9\r\nHost: SITE\r\n\r\n", 505, ""},
	{"HTTP/0.9 with fields", "GET http://SITE/ HTTP/0.9\r\nHost: SITE\r\n\r\n", 505, ""},
	{"HTTP/2.0 in clear text", "GET http://SITE/ HTTP/2.0\r\nHost: SITE\r\n\r\n", 505, ""},
	{"a word behind the version", "GET http://SITE/ HTTP/1.1 x\r\nHost: SITE\r\n\r\n", 400, ""},
	{"a blank behind the version", "GET http://SITE/ HTTP/1.1 \r\nHost: SITE\r\n\r\n", 400, ""},
	{"two blanks before the target", "GET  http://SITE/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"two blanks before the version", "GET http://SITE/  HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"tabs for blanks", "GET\thttp://SITE/\tHTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"a blank in the target", "GET http://SITE/a b HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"a tab in the target", "GET http://SITE/a\tb HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"a NUL in the target", "GET http://SITE/a\x00b HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"a CR in the target", "GET http://SITE/a\rb HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"a DEL in the target", "GET http://SITE/a\x7fb HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"brackets around no address", "GET http://[127.0.0.1]/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"an open bracket", "GET http://[::1/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"two closing brackets", "GET http://[::1]]/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"a port that is a word", "GET http://127.0.0.1:http/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"a port below zero", "GET http://127.0.0.1:-1/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"a port with a blank", "GET http://127.0.0.1: 80/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"two ports", "GET http://127.0.0.1:80:80/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"an escaped NUL in the host", "GET http://a%00.example/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"an escape in the host", "GET http://ex%61mple.com/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"a backslash in the host", "GET http://SITE\\x/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"a backslash in the user information", "GET http://u\\:p@SITE/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"an authority alone", "GET SITE/with/a/path HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"a name alone", "GET page.html HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"a query alone", "GET ?x HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"a method of odd bytes", "G{}T http://SITE/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"a method with a colon", "GET: http://SITE/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"a method of other letters", "G\u00c9T http://SITE/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"a method with a NUL", "GET\x00 http://SITE/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"CONNECT to an invalid port", "CONNECT example.com:http HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"CONNECT to two ports", "CONNECT example.com:443:443 HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"CONNECT with a blank", "CONNECT exa mple.com:443 HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"an empty line first", "\r\nGET http://SITE/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, ""},
	{"binary", "\x01\x02\x03\xff\xfe\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\r\n\r\n", 400, ""},

	// The fields.
	{"no Host", "GET http://SITE/ HTTP/1.1\r\n\r\n", 400, ""},
	{"two Hosts", "GET http://SITE/ HTTP/1.1\r\nHost: SITE\r\nHost: other.example\r\n\r\n", 400, ""},
	{"the same Host twice", "GET http://SITE/ HTTP/1.1\r\nHost: SITE\r\nHost: SITE\r\n\r\n", 400, ""},
	{"a Host with a blank", "GET http://SITE/ HTTP/1.1\r\nHost: a b\r\n\r\n", 400, ""},
	{"a Host with a slash", "GET http://SITE/ HTTP/1.1\r\nHost: a/b\r\n\r\n", 400, ""},
	{"a Host with user information", "GET http://SITE/ HTTP/1.1\r\nHost: u@SITE\r\n\r\n", 400, ""},
	{"a Host with a NUL", "GET http://SITE/ HTTP/1.1\r\nHost: a\x00b\r\n\r\n", 400, ""},
	{"a blank before a colon", "GET http://SITE/ HTTP/1.1\r\nHost: SITE\r\nX-A : b\r\n\r\n", 400, ""},
	{"a tab before a colon", "GET http://SITE/ HTTP/1.1\r\nHost: SITE\r\nX-A\t: b\r\n\r\n", 400, ""},
	{"a field without colon", "GET http://SITE/ HTTP/1.1\r\nHost: SITE\r\nnonsense\r\n\r\n", 400, ""},
	{"a field without name", "GET http://SITE/ HTTP/1.1\r\nHost: SITE\r\n: b\r\n\r\n", 400, ""},
	{"a blank in a name", "GET http://SITE/ HTTP/1.1\r\nHost: SITE\r\nX A: b\r\n\r\n", 400, ""},
	{"a NUL in a name", "GET http://SITE/ HTTP/1.1\r\nHost: SITE\r\nX\x00A: b\r\n\r\n", 400, ""},
	{"other letters in a name", "GET http://SITE/ HTTP/1.1\r\nHost: SITE\r\nX-\u00c4: b\r\n\r\n", 400, ""},
	{"brackets in a name", "GET http://SITE/ HTTP/1.1\r\nHost: SITE\r\nX(A): b\r\n\r\n", 400, ""},
	{"a CR within a field", "GET http://SITE/ HTTP/1.1\r\nHost: SITE\r\nX-A: b\rc\r\n\r\n", 400, ""},
	{"a NUL within a field", "GET http://SITE/ HTTP/1.1\r\nHost: SITE\r\nX-A: b\x00c\r\n\r\n", 400, ""},
	{"a DEL within a field", "GET http://SITE/ HTTP/1.1\r\nHost: SITE\r\nX-A: b\x7fc\r\n\r\n", 400, ""},
	{"an ESC within a field", "GET http://SITE/ HTTP/1.1\r\nHost: SITE\r\nX-A: \x1b[2J\r\n\r\n", 400, ""},
	{"a first field that goes on", "GET http://SITE/ HTTP/1.1\r\n X-A: b\r\nHost: SITE\r\n\r\n", 400, ""},
	{"a blank line that is not empty", "GET http://SITE/ HTTP/1.1\r\n\t\r\nHost: SITE\r\n\r\n", 400, ""},
	{"an expectation that nobody knows", "GET http://SITE/ HTTP/1.1\r\nHost: SITE\r\nExpect: 200-ok\r\n\r\n", 417, ""},

	// Lengths.
	{"two lengths", "POST http://SITE/ HTTP/1.1\r\nHost: SITE\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n0\r\n\r\n", 400, ""},
	{"a length below zero", "POST http://SITE/ HTTP/1.1\r\nHost: SITE\r\nContent-Length: -1\r\n\r\n0\r\n\r\n", 400, ""},
	{"a length with a sign", "POST http://SITE/ HTTP/1.1\r\nHost: SITE\r\nContent-Length: +1\r\n\r\n0\r\n\r\n", 400, ""},
	{"a length in hex", "POST http://SITE/ HTTP/1.1\r\nHost: SITE\r\nContent-Length: 0x1\r\n\r\n0\r\n\r\n", 400, ""},
	{"a list of lengths", "POST http://SITE/ HTTP/1.1\r\nHost: SITE\r\nContent-Length: 1, 1\r\n\r\n0\r\n\r\n", 400, ""},
	{"a length with a blank", "POST http://SITE/ HTTP/1.1\r\nHost: SITE\r\nContent-Length: 1 1\r\n\r\n0\r\n\r\n", 400, ""},
	{"a length that is a word", "POST http://SITE/ HTTP/1.1\r\nHost: SITE\r\nContent-Length: one\r\n\r\n0\r\n\r\n", 400, ""},
	{"no length", "POST http://SITE/ HTTP/1.1\r\nHost: SITE\r\nContent-Length:\r\n\r\n0\r\n\r\n", 400, ""},
	{"a length beyond all", "POST http://SITE/ HTTP/1.1\r\nHost: SITE\r\nContent-Length: 99999999999999999999\r\n\r\n0\r\n\r\n", 400, ""},
	{"a length with a point", "POST http://SITE/ HTTP/1.1\r\nHost: SITE\r\nContent-Length: 1.0\r\n\r\n0\r\n\r\n", 400, ""},
	{"a length with an exponent", "POST http://SITE/ HTTP/1.1\r\nHost: SITE\r\nContent-Length: 1e1\r\n\r\n0\r\n\r\n", 400, ""},
	{"a length that goes on", "POST http://SITE/ HTTP/1.1\r\nHost: SITE\r\nContent-Length: 1\r\n 0\r\n\r\n0\r\n\r\n", 400, ""},
	{"a transfer coding that nobody has", "POST http://SITE/ HTTP/1.1\r\nHost: SITE\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n", 501, ""},
	{"two codings", "POST http://SITE/ HTTP/1.1\r\nHost: SITE\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501, ""},
	{"chunked twice", "POST http://SITE/ HTTP/1.1\r\nHost: SITE\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 501, ""},
	{"two fields of codings", "POST http://SITE/ HTTP/1.1\r\nHost: SITE\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501, ""},
	{"identity", "POST http://SITE/ HTTP/1.1\r\nHost: SITE\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n", 501, ""},
	{"no coding", "POST http://SITE/ HTTP/1.1\r\nHost: SITE\r\nTransfer-Encoding:\r\n\r\n0\r\n\r\n", 501, ""},
	{"a coding with a parameter", "POST http://SITE/ HTTP/1.1\r\nHost: SITE\r\nTransfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n", 501, ""},
	{"a coding with an odd byte", "POST http://SITE/ HTTP/1.1\r\nHost: SITE\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 400, ""},
	{"a coding in quotes", "POST http://SITE/ HTTP/1.1\r\nHost: SITE\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", 501, ""},
	{"length and coding", "POST http://SITE/ HTTP/1.1\r\nHost: SITE\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, ""},
	{"coding and length", "POST http://SITE/ HTTP/1.1\r\nHost: SITE\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400, ""},
	{"length and a coding that nobody has", "POST http://SITE/ HTTP/1.1\r\nHost: SITE\r\nContent-Length: 5\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n", 400, ""},
	{"a length of 0 and a coding", "POST http://SITE/ HTTP/1.1\r\nHost: SITE\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, ""},
	{"a trailer that frames", "POST http://SITE/ HTTP/1.1\r\nHost: SITE\r\nTransfer-Encoding: chunked\r\nTrailer: Content-Length\r\n\r\n0\r\n\r\n", 400, ""},
	{"a coding in HTTP/1.0", "POST http://SITE/ HTTP/1.0\r\nHost: SITE\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, ""},
	{"length and coding in HTTP/1.0", "POST http://SITE/ HTTP/1.0\r\nHost: SITE\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, ""},

	// Targets.
	{"user information", "GET http://user:password@SITE/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"an empty user information", "GET http://@SITE/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"user information behind one slash", "GET http:/user:password@SITE/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"user information behind no slash", "GET http:user:password@SITE/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"user information without scheme", "GET //user:password@SITE/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"no host", "GET http:///path HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"a port alone", "GET http://:80/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"no slashes", "GET http:SITE/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"one slash", "GET http:/SITE/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"an opaque URL", "GET mailto:bots HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"a lone percent sign in the host", "GET http://%25zz/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"a scheme that crawlers do not speak", "GET gopher://SITE/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"a file", "GET file:///etc/passwd HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"WebSocket by its scheme", "GET ws://SITE/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"a script", "GET javascript:alert(1) HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"port 0", "GET http://127.0.0.1:0/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"port 65536", "GET http://127.0.0.1:65536/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"a port with a zero in front", "GET http://127.0.0.1:080/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"a decimal address", "GET http://2130706433/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"a hexadecimal address", "GET http://0x7f.1/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"an octal address", "GET http://0177.0.0.1/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"a short address", "GET http://127.1/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"an address with a zero in front", "GET http://127.0.0.01/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"an address with two dots behind", "GET http://127.0.0.1../ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"an IPv4 address in an IPv6 one", "GET http://[::ffff:127.0.0.1]/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"an empty label", "GET http://a..example/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"a dot in front", "GET http://.example/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"two trailing dots", "GET http://example.com../ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"a label of 64 bytes", "GET http://aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.example/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"an IPv6 zone", "GET http://[fe80::1%25eth0]/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"an IPv6 address in capitals with zeros", "GET http://[2001:0DB8::0001]/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"CONNECT to nothing", "CONNECT  HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"CONNECT without port", "CONNECT example.com HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"CONNECT with an empty port", "CONNECT example.com: HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"CONNECT to port 0", "CONNECT example.com:0 HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"CONNECT to port 65536", "CONNECT example.com:65536 HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"CONNECT with user information", "CONNECT user:password@SITE HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"CONNECT to a URL", "CONNECT http://SITE/ HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"CONNECT to a path", "CONNECT /path HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"CONNECT with a path", "CONNECT SITE/path HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"CONNECT with a query", "CONNECT SITE?x HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"CONNECT to a decimal address", "CONNECT 2130706433:443 HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},
	{"CONNECT to a port without host", "CONNECT :443 HTTP/1.1\r\nHost: SITE\r\n\r\n", 400, "bad_target"},

	// Fields that may appear once.
	{"two User-Agents", "GET http://SITE/ HTTP/1.1\r\nHost: SITE\r\nUser-Agent: A\r\nUser-Agent: B\r\n\r\n", 400, "bad_request"},
	{"two Proxy-Authorizations", "GET http://SITE/ HTTP/1.1\r\nHost: SITE\r\nProxy-Authorization: Basic dTpw\r\nProxy-Authorization: Basic dTpx\r\n\r\n", 400, "bad_request"},
	{"two User-Agents with CONNECT", "CONNECT SITE HTTP/1.1\r\nHost: SITE\r\nUser-Agent: A\r\nUser-Agent: B\r\n\r\n", 400, "bad_request"},
}

// longRequests returns requests above the limit for a header.
func longRequests() []malformed {
	const host = "Host: SITE\r\n"
	return []malformed{
		{"a header bomb", "GET http://SITE/ HTTP/1.1\r\n" + host + strings.Repeat("X-Bomb: "+strings.Repeat("b", 4000)+"\r\n", 500) + "\r\n", 431, ""},
		{"a URL of 64 KiB", "GET http://SITE/" + strings.Repeat("a", 64<<10) + " HTTP/1.1\r\n" + host + "\r\n", 431, ""},
		{"a query of 64 KiB", "GET http://SITE/?" + strings.Repeat("a", 64<<10) + " HTTP/1.1\r\n" + host + "\r\n", 431, ""},
		{"a URL of 2 MiB", "GET http://SITE/" + strings.Repeat("a", 2<<20) + " HTTP/1.1\r\n" + host + "\r\n", 431, ""},
	}
}

// TestMalformedRequests sends the requests to the gateway's port. net/http answers the ones that it
// cannot read; the others have a line in the access log. None reaches the site.
func TestMalformedRequests(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	g := rig.New(t, rig.Config{})
	refused := 0
	for _, tt := range append(malformedRequests, longRequests()...) {
		raw := strings.ReplaceAll(tt.raw, "SITE", site.Origin().Authority())
		method, rest, _ := strings.Cut(raw, " ")
		target, _, _ := strings.Cut(rest, " ")
		w := g.Dial()
		_ = w.SetDeadline(time.Now().Add(10 * time.Second))
		a, err := w.Ask(method, raw)
		// Unread data makes the system reset the connection after the answer.
		if err != nil && (tt.reason != "" || !errors.Is(err, syscall.ECONNRESET)) || a.Status != tt.status {
			t.Errorf("%s: status %d, error %v, want %d: %.300q", tt.name, a.Status, err, tt.status, a.Body)
		}
		if strings.Contains(a.Body, "password") {
			t.Errorf("%s: the answer repeats the credentials: %s", tt.name, a.Body)
		}
		if tt.reason != enforce.ReasonBadTarget {
			if n, err := w.Reader.Peek(1); err != io.EOF && !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("%s: after the answer, read %q, error %v, want the end", tt.name, n, err)
			}
		}
		if tt.reason == "" {
			continue // net/http has answered
		}
		refused++
		l := g.Logs(refused)[refused-1]
		if l.Status != tt.status || l.Robots.Reason != tt.reason || l.Robots.Decision != "deny" || l.Request.Method != method ||
			!strings.Contains(a.Header.Get("Proxy-Status"), "crawlgate; error=http_request_error") {
			t.Errorf("%s: header %v, log line %s", tt.name, a.Header, l.Raw)
		}
		if !strings.Contains(target, "password") && l.Request.URI != target {
			t.Errorf("%s: the log line has the URI %q", tt.name, l.Request.URI)
		}
	}
	if n := site.Exchanges(); len(n) > 0 {
		t.Errorf("requests reached the site: %+v", n)
	}
	tellsUnread(g)
}

// tellsUnread checks that the process log reports requests that cannot be read.
func tellsUnread(g *rig.Gateway) {
	g.T.Helper()
	rig.Eventually(g.T, "a line of a request that cannot be read", func() bool {
		return strings.Contains(g.Stderr.String(), "a request cannot be read; logged once a second")
	})
}

// TestMalformedRequestsInTunnels sends the requests that cannot be read inside tunnels, over TLS
// and as plain HTTP.
func TestMalformedRequestsInTunnels(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	secure := rig.StartSecureSite(t, authority, nil)
	plain := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	g := rig.New(t, rig.Config{Engine: rig.Unpaced}.Trusting(authority))
	for _, tt := range append(malformedRequests, longRequests()...) {
		if tt.reason != "" {
			continue // in a tunnel, it is for another authority or has a path
		}
		for authority, open := range map[string]func() *rig.Wire{
			plain.Origin().Authority(): func() *rig.Wire { return g.Tunnel(plain.Origin().Authority()) },
			secure.Authority():         func() *rig.Wire { return rig.Inside(t, g.Tunnel(secure.Authority())) },
		} {
			raw := strings.NewReplacer("http://SITE/", "/", "SITE", authority).Replace(tt.raw)
			if first := raw[0] | 0x20; first < 'a' || first > 'z' {
				continue // a tunnel takes it for neither TLS nor HTTP
			}
			method, _, _ := strings.Cut(raw, " ")
			w := open()
			_ = w.SetDeadline(time.Now().Add(10 * time.Second))
			a, err := w.Ask(method, raw)
			if err != nil || a.Status != tt.status {
				t.Errorf("%s, to %s: status %d, error %v, want %d: %.300q", tt.name, authority, a.Status, err, tt.status, a.Body)
			}
			if n, err := w.Reader.Peek(1); err == nil {
				t.Errorf("%s, to %s: after the answer, read %q, want the end", tt.name, authority, n)
			}
			_ = w.Close()
		}
	}
	if n := plain.Exchanges(); len(n) > 0 {
		t.Errorf("requests reached the site: %+v", n)
	}
	if n := secure.Arrived(); len(n) > 0 {
		t.Errorf("requests reached the https site: %+v", n)
	}
	tellsUnread(g)
}

// TestLonePercent requests URLs as browsers spell them. A percent sign that begins no escape is %25
// for the rules, the site, the log and the audit, also inside tunnels.
func TestLonePercent(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: *\nDisallow: /sale-50%25-off\nDisallow: /cut-5%\n"))
	g := rig.New(t, rig.Config{Engine: rig.Unpaced})
	for _, tt := range []struct {
		path, uri string
		status    int
	}{
		{"/sale-50%-off", "/sale-50%25-off", http.StatusForbidden},
		{"/cut-5%", "/cut-5%25", http.StatusForbidden},
		{"/%", "/%25", http.StatusOK},
		{"/a%4?q=5%", "/a%254?q=5%", http.StatusOK},
	} {
		host := site.Origin().Authority()
		rest := " HTTP/1.1\r\nHost: " + host + "\r\nUser-Agent: Tester/1.0\r\n\r\n"
		for _, raw := range []string{"GET http://" + host + tt.path + rest, "GET " + tt.path + rest} {
			w := g.Dial()
			if strings.HasPrefix(raw, "GET /") {
				w = g.Tunnel(host)
			}
			if a, err := w.Ask(http.MethodGet, raw); err != nil || a.Status != tt.status {
				t.Errorf("%.60q: status %d, error %v, want %d: %s", raw, a.Status, err, tt.status, a.Body)
			}
		}
		logged := 0
		for _, l := range g.ReadLogs() {
			if strings.HasSuffix(l.Request.URI, tt.uri) {
				logged++
			}
		}
		if logged != 2 {
			t.Errorf("%s: %d log lines for %s, want 2", tt.path, logged, tt.uri)
		}
		for _, e := range site.PageExchanges() {
			if strings.Contains(e.Target, "%-") || strings.HasSuffix(e.Target, "/%") {
				t.Errorf("the site got the target %q", e.Target)
			}
		}
	}
	g.Stop()
	if r := rig.Audit(t, "--store", g.Store(), g.AccessLog()); r.Status != 0 || len(r.Findings) > 0 || r.Totals.Checked < 8 {
		t.Errorf("audit: status %d, %d lines checked, findings %+v: %s", r.Status, r.Totals.Checked, r.Findings, r.Stderr)
	}
}

// TestLonePercentInHTTP2 checks that the log reports a path that net/http cannot read in HTTP/2.
// net/http resets the stream without calling a handler, and the site gets no request. Over HTTP/1.1
// in the same tunnel, the request succeeds.
func TestLonePercentInHTTP2(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	site := server.Site(t, testorigin.SiteConfig{Scheme: "https"})
	g := rig.New(t, rig.Config{Engine: rig.Unpaced, Egress: "trust_ca " + rig.CAFile(t, server)})
	curl := func(version string) (string, error) {
		out, err := exec.CommandContext(t.Context(), rig.Need(t, "curl"), "--disable", "--silent", "--show-error", version, "--max-time", "20",
			"--proxy", "http://"+g.Addr, "--noproxy", "", "--cacert", g.RootFile(), site.URL("/sale-50%-off")).CombinedOutput()
		return string(out), err
	}
	if out, err := curl("--http1.1"); err != nil {
		t.Errorf("HTTP/1.1: error %v, output %s", err, out)
	}
	if out, err := curl("--http2"); err == nil || !strings.Contains(out, "HTTP/2") {
		t.Errorf("HTTP/2: error %v, output %s", err, out)
	}
	tellsUnread(g)
	if n := g.Metric("crawlgate_connections_refused_total"); n < 1 {
		t.Errorf("the metric counts %v requests, want at least 1", n)
	}
	if pages := site.PageExchanges(); len(pages) != 1 || pages[0].Target != "/sale-50%25-off" {
		t.Errorf("the site got %+v, want one page", pages)
	}
}

// TestLonePercentInHTTP2ToTheGateway is TestLonePercentInHTTP2 without a tunnel.
func TestLonePercentInHTTP2ToTheGateway(t *testing.T) {
	t.Parallel()
	config, port := rig.Config{Engine: rig.Unpaced}.WithTLSPort(t, rig.NewTestCA(t), "")
	g := rig.New(t, config)
	h := port.RawH2(t)
	a, err := h.Ask(":method", "GET", ":scheme", "https", ":authority", port.Addr, ":path", "/sale-50%-off", "user-agent", "Tester/1.0")
	if err == nil {
		t.Errorf("the request got status %d, want a reset: %s", a.Status, a.Body)
	}
	tellsUnread(g)
	if n := g.Metric("crawlgate_connections_refused_total"); n != 1 {
		t.Errorf("the metric counts %v requests, want 1", n)
	}
	if a, err := h.Ask(":method", "GET", ":scheme", "https", ":authority", port.Addr, ":path", "/", "user-agent", "Tester/1.0"); err != nil {
		t.Errorf("the next request of the connection: status %d, error %v", a.Status, err)
	}
}
