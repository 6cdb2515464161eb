package botpage

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/origin"
)

var (
	key   = []byte("0123456789abcdef0123456789abcdef")
	start = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	ours  = claim{"acmebot", "shop.example", enforce.StopAgentHost}
)

// TestToken checks that a token is valid for its claim until it expires, and for nothing else.
func TestToken(t *testing.T) {
	t.Parallel()
	until := start.Add(tokenFor)
	token := ours.token(key, until)
	if !ours.holds(key, token, start) || !ours.holds(key, token, until.Add(-time.Second)) || ours.holds(key, token, until) {
		t.Errorf("token %s is not valid exactly until %s", token, until)
	}
	later, _, _ := strings.Cut(ours.token(key, until.Add(time.Hour)), "-")
	_, mac, _ := strings.Cut(token, "-")
	for name, forged := range map[string]string{
		"none": "", "no time": "-" + mac, "no mac": later + "-", "a later time": later + "-" + mac, "a sign": "+" + token, "zeros": "0" + token,
		"upper case": strings.ToUpper(token), "more": token + "0", "less": token[:len(token)-1], "a space": token + " ",
		"other agent":     claim{"newsbot", ours.Host, ours.Scope}.token(key, until),
		"other host":      claim{ours.Agent, "shop.example.org", ours.Scope}.token(key, until),
		"subdomain":       claim{ours.Agent, "www.shop.example", ours.Scope}.token(key, until),
		"parent":          claim{ours.Agent, "example", ours.Scope}.token(key, until),
		"wider scope":     claim{ours.Agent, ours.Host, enforce.StopHost}.token(key, until),
		"other key":       ours.token([]byte("0123456789abcdef0123456789abcdee"), until),
		"no key":          ours.token(nil, until),
		"quotes in names": claim{`acmebot" "shop.example`, "", ours.Scope}.token(key, until),
		"too old":         ours.token(key, start),
	} {
		if forged == token || ours.holds(key, forged, start) {
			t.Errorf("%s: the token %q is accepted", name, forged)
		}
	}
}

// TestOrder checks that a proof gives one order, with the id of its ticket.
func TestOrder(t *testing.T) {
	t.Parallel()
	token := ours.token(key, start.Add(tokenFor))
	order, err := ours.order(token, "file", start)
	if err != nil || order.ID != ticketOf(token) || !enforce.IsStopID(order.ID) || order.Scope != enforce.StopAgentHost || order.Value != "acmebot@shop.example" ||
		order.By != "site owner of shop.example" || order.Reason != "opt-out, proven by file, ticket "+order.ID {
		t.Errorf("the order of one port = %+v, %v", order, err)
	}
	all := claim{"acmebot", strings.Repeat("a.", 80) + "example", enforce.StopHost}
	if order, err = all.order(token, "dns", start); err != nil || order.Value != all.Host {
		t.Errorf("the order of all ports = %+v, %v", order, err)
	}
	var stops enforce.Stops
	for _, c := range []claim{ours, {ours.Agent, ours.Host, enforce.StopHost}} {
		if c.stopped(&stops) {
			t.Errorf("%+v is stopped before the order is given", c)
		}
		order, _ = c.order(c.token(key, start.Add(tokenFor)), "file", start)
		if err := stops.Set(order); err != nil || !c.stopped(&stops) {
			t.Errorf("%+v is not stopped by its order: %v", c, err)
		}
	}
	var some enforce.Stops
	_ = some.Set(enforce.Stop{Scope: enforce.StopHost, Value: "shop.example:443"})
	_ = some.Set(enforce.Stop{Scope: enforce.StopAgentHost, Value: "newsbot@shop.example"})
	for _, operators := range []enforce.Stop{
		{Scope: enforce.StopAll},
		{Scope: enforce.StopAgent, Value: "acmebot"},
		{Scope: enforce.StopHost, Value: "shop.example"},
		{Scope: enforce.StopAgentHost, Value: "acmebot@shop.example"},
	} {
		if err := some.Set(operators); err != nil {
			t.Fatal(err)
		}
	}
	if ours.stopped(&some) {
		t.Error("a stop of one port, of another agent, or of the operator counts as the claim's stop")
	}
	if err := some.Set(enforce.Stop{ID: ticketHead + "0", Scope: enforce.StopHost, Value: "shop.example"}); err != nil || ours.stopped(&some) {
		t.Errorf("an opt-out from all counts as that from one: %v", err)
	}
}

// TestRoom checks the limits of opt-outs per registered domain and of all owners.
func TestRoom(t *testing.T) {
	t.Parallel()
	var held []enforce.Stop
	optOut := func(host string) {
		c := claim{"acmebot", host, enforce.StopAgentHost}
		order, err := c.order(c.token(key, start.Add(tokenFor)), "dns", start)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, order)
	}
	for i := range maxPerDomain {
		if err := (claim{Host: "new.shop.example"}).room(held); err != nil {
			t.Fatalf("room after %d opt-outs: %v", i, err)
		}
		optOut(fmt.Sprintf("n%d.shop.example", i))
		held = append(held, enforce.Stop{ID: "operator", Scope: enforce.StopHost, Value: "shop.example"})
	}
	if err := ours.room(held); !errors.Is(err, enforce.ErrTooManyStops) {
		t.Errorf("room after %d opt-outs of one domain: got %v, want ErrTooManyStops", maxPerDomain, err)
	}
	other := claim{Host: "other.example"}
	for i := range maxOptOuts - maxPerDomain {
		if i%1000 == 0 && other.room(held) != nil {
			t.Errorf("room after %d opt-outs in all: %v", i+maxPerDomain, other.room(held))
		}
		optOut(fmt.Sprintf("shop%d.co.uk", i))
	}
	if err := other.room(held); !errors.Is(err, enforce.ErrTooManyStops) {
		t.Errorf("room after %d opt-outs in all: got %v, want ErrTooManyStops", maxOptOuts, err)
	}
}

// TestParseHost checks that only a single host name is accepted, in its canonical form.
func TestParseHost(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"shop.example": "shop.example", " Shop.Example. ": "shop.example", "bücher.example": "xn--bcher-kva.example", "ｓｈｏｐ.example": "shop.example",
		"": "", "*": "", "*.example": "", "*.shop.example": "", "shop.*": "", "localhost": "", "com": "", "shop.example:443": "", "shop.example:8080": "",
		"192.0.2.1": "", "[2001:db8::1]": "", "2001:db8::1": "", "0x7f.1": "", "127.1": "", "１２７.0.0.1": "",
		"a@shop.example": "", "acmebot@shop.example": "", "shop.example/": "", "https://shop.example": "", "shop.example?x": "", "shop.example#x": "",
		"shop.example\n": "shop.example", "shop.ex\nample": "", "shop.example other.example": "", "shop.example,other.example": "", "shop%2eexample": "",
		"xn--a.example": "", "shop\u202e.example": "", "shop.example\x00": "", ".shop.example": "", "shop..example": "", strings.Repeat("a.", 90) + "example": "",
	} {
		if got, ok := parseHost(text); ok != (want != "") || ok && got != want {
			t.Errorf("%q: %q, %t, want %q", text, got, ok, want)
		}
	}
}

// sites answers requests by URL, and records them.
type sites struct {
	answers map[string]func() (*http.Response, error)
	asked   []string
	ctx     context.Context // of the last request
}

func (s *sites) RoundTrip(r *http.Request) (*http.Response, error) {
	s.asked, s.ctx = append(s.asked, r.URL.String()), r.Context()
	if f, ok := s.answers[r.URL.String()]; ok {
		return f()
	}
	return nil, errors.New("nobody is there")
}

func answer(status int, body io.Reader) func() (*http.Response, error) {
	return func() (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: http.Header{"Location": {"https://evil.example/token"}}, Body: io.NopCloser(body)}, nil
	}
}

func failure(err error) func() (*http.Response, error) {
	return func() (*http.Response, error) { return nil, fmt.Errorf("sending: %w", err) }
}

// endless is an infinite body that counts the bytes read.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	return copy(p, strings.Repeat(" ", len(p))), nil
}

// untilDone is a body that blocks until the context of the request ends.
type untilDone struct{ of *sites }

func (u untilDone) Read([]byte) (int, error) {
	<-u.of.ctx.Done()
	return 0, u.of.ctx.Err()
}

// TestProve checks that a host is proven only by its own file or record.
func TestProve(t *testing.T) {
	t.Parallel()
	const token, secure, plain = "6a2b-0123", "https://shop.example" + proofPath, "http://shop.example" + proofPath
	type answers = map[string]func() (*http.Response, error)
	refused := &egress.DialError{Phase: egress.PhaseConnect, Host: "shop.example", Err: syscall.ECONNREFUSED}
	unasked := &egress.DialError{Phase: egress.PhaseProxy, Host: "proxy.example:3128", Err: refused}
	right, huge := func() io.Reader { return strings.NewReader(" " + token + "\r\n") }, new(endless)
	record := func(texts ...string) func(context.Context, string) ([]string, error) {
		return func(_ context.Context, name string) ([]string, error) {
			if name != "_crawlgate-opt-out.shop.example." {
				return nil, fmt.Errorf("asked for %s", name)
			}
			return texts, nil
		}
	}
	for _, tt := range []struct {
		name, how string
		answers   answers
		records   func(context.Context, string) ([]string, error)
		want      string // part of the error; empty for none
		asked     []string
	}{
		{"file", "file", answers{secure: answer(200, right())}, nil, "", []string{secure}},
		{"no https", "file", answers{secure: failure(refused), plain: answer(200, right())}, nil, "", []string{secure, plain}},
		{"another text", "file", answers{secure: answer(200, strings.NewReader("6a2b-0124"))}, nil, "something else", []string{secure}},
		{"empty", "file", answers{secure: answer(200, strings.NewReader(""))}, nil, "something else", []string{secure}},
		{"more text", "file", answers{secure: answer(200, strings.NewReader("you asked for "+token))}, nil, "something else", []string{secure}},
		{"redirect", "file", answers{secure: answer(302, right()), "https://evil.example/token": answer(200, right())}, nil, "answered 302", []string{secure}},
		{"not found", "file", answers{secure: answer(404, right())}, nil, "answered 404", []string{secure}},
		{"partial", "file", answers{secure: answer(206, right())}, nil, "answered 206", []string{secure}},
		{"huge", "file", answers{secure: answer(200, huge)}, nil, "too long", []string{secure}},
		{
			"bad certificate", "file",
			answers{secure: failure(x509.UnknownAuthorityError{}), plain: answer(200, right())},
			nil,
			"looking for a proof",
			[]string{secure},
		},
		{
			"no such name", "file",
			answers{secure: failure(&egress.DialError{Phase: egress.PhaseResolve, Err: errors.New("none")}), plain: answer(200, right())},
			nil,
			"looking for a proof",
			[]string{secure},
		},
		{"no upstream proxy", "file", answers{secure: failure(unasked), plain: answer(200, right())}, nil, "looking for a proof", []string{secure}},
		{"record", "dns", nil, record("v=spf1 -all", token), "", nil},
		{"another record", "dns", nil, record("v=spf1 -all", "6a2b-0124"), "something else", nil},
		{"record with more", "dns", nil, record(token + " " + token), "something else", nil},
		{"no record", "dns", nil, record(), "something else", nil},
		{"hang up", "file", answers{secure: answer(200, io.MultiReader(right(), iotest.ErrReader(io.ErrUnexpectedEOF)))}, nil, "looking for a proof", []string{secure}},
		{"no DNS", "dns", nil, func(context.Context, string) ([]string, error) { return []string{token}, errors.New("timeout") }, "looking for a proof", nil},
	} {
		site := &sites{answers: tt.answers}
		p := prover{site, "Crawlgate/1", func(origin.Origin) error { return nil }, tt.records}
		err := p.prove(t.Context(), "shop.example", token, tt.how)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
		if !slices.Equal(site.asked, tt.asked) {
			t.Errorf("%s: asked for %q, want %q", tt.name, site.asked, tt.asked)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		began, slow := time.Now(), new(sites)
		slow.answers = answers{secure: answer(200, untilDone{slow})}
		p := prover{slow, "", func(origin.Origin) error { return nil }, nil}
		if err := p.prove(t.Context(), "shop.example", token, "file"); err == nil || time.Since(began) != proofTime {
			t.Errorf("an endless file: got error %v after %v, want one after proofTime", err, time.Since(began))
		}
	})
	if huge.read > 8<<10 {
		t.Errorf("read %d bytes of a huge file, want at most 8 KiB", huge.read)
	}
	site := new(sites)
	p := prover{site, "", func(origin.Origin) error { return errors.New("by a stop") }, nil}
	err := p.prove(t.Context(), "shop.example", token, "file")
	if _, told := errors.AsType[unproven](err); err == nil || told || len(site.asked) > 0 {
		t.Errorf("a host that the operator forbids: got error %v and requests %q, want an internal error and none", err, site.asked)
	}
}

// TestQuestions checks that the number of questions of all clients is limited.
func TestQuestions(t *testing.T) {
	t.Parallel()
	h := &Handler{clients: newLimits(time.Hour, 10), asked: rate.NewLimiter(0, 2)}
	v := view{new(engine.Engine), &engine.SitePolicy{Operator: new(enforce.Policy)}, enforce.Identity{Config: new(enforce.Agent)}}
	for i, want := range []int{400, 400, 429} {
		w := httptest.NewRecorder()
		if err := h.showPage(w, httptest.NewRequest(http.MethodGet, "/?host=*", http.NoBody), v); err != nil || w.Code != want {
			t.Errorf("question %d: %d, %v, want %d", i, w.Code, err, want)
		}
	}
}

// TestLimits checks that a client that asks too often does not keep others from asking.
func TestLimits(t *testing.T) {
	t.Parallel()
	l, passed := newLimits(time.Hour, 3), 0
	for range 1000 {
		if l.allow("192.0.2.1") {
			passed++
		}
	}
	others := 0
	for i := range 100 {
		if l.allow(fmt.Sprint("198.51.100.", i)) {
			others++
		}
	}
	if passed != 3 || others < 95 {
		t.Errorf("%d requests of one client and %d of 100 others passed, want 3 and at least 95", passed, others)
	}
}

// TestSlowBody checks that a client that does not send its body holds a connection only briefly.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	// As text, and as parts that end before the body does.
	const form = "Content-Type: application/x-www-form-urlencoded\r\n\r\nhost=shop.example&scope=host"
	const parts = "Content-Type: multipart/form-data; boundary=b\r\n\r\n" +
		"--b\r\nContent-Disposition: form-data; name=host\r\n\r\nshop.example\r\n" +
		"--b\r\nContent-Disposition: form-data; name=scope\r\n\r\nhost\r\n--b--\r\n"
	for _, tt := range []struct {
		method, body string
		serve        func(h *Handler, w http.ResponseWriter, r *http.Request) error
		status       string
	}{
		{http.MethodGet, form, serveAlone, "503"},
		{http.MethodPost, form, serveAlone, "503"},
		{http.MethodPost, form, takeAlone, "400"},
		{http.MethodPost, parts, takeAlone, "400"},
	} {
		synctest.Test(t, func(t *testing.T) {
			client, server := net.Pipe()
			h := &Handler{cross: http.NewCrossOriginProtection(), clients: newLimits(time.Second, 1)}
			s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _ = tt.serve(h, w, r) })}
			go func() { _ = s.Serve(&pipeListener{server, make(chan struct{})}) }()
			defer s.Close()
			began := time.Now()
			_, _ = io.WriteString(client, tt.method+" /opt-out HTTP/1.1\r\nHost: bot.example\r\nContent-Length: 1000\r\n"+tt.body)
			time.AfterFunc(time.Minute, func() { _ = client.Close() })
			answer, err := io.ReadAll(client)
			if took := time.Since(began); err != nil || took != bodyTime || !strings.HasPrefix(string(answer), "HTTP/1.1 "+tt.status+" ") {
				t.Errorf("%s: open for %v, error %v, answer %s; want %s after %v", tt.method, took, err, answer, tt.status, bodyTime)
			}
		})
	}
}

// serveAlone serves a request while no gateway runs, and takeAlone reads its form.
func serveAlone(h *Handler, w http.ResponseWriter, r *http.Request) error {
	return h.ServeHTTP(w, r, nil)
}

func takeAlone(h *Handler, w http.ResponseWriter, r *http.Request) error {
	readUntil(w, time.Now().Add(bodyTime))
	return h.takeOptOut(w, r, view{})
}

// pipeListener gives one connection.
type pipeListener struct {
	conn net.Conn
	end  chan struct{}
}

func (l *pipeListener) Accept() (conn net.Conn, err error) {
	if conn, l.conn = l.conn, nil; conn == nil {
		<-l.end
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (l *pipeListener) Close() error {
	close(l.end)
	return nil
}

func (l *pipeListener) Addr() net.Addr { return new(net.TCPAddr) }
