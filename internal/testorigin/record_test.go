package testorigin_test

import (
	"bufio"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

func TestRequestIsRecordedAsItCame(t *testing.T) {
	t.Parallel()
	clock := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	server := testorigin.Start(t, testorigin.Config{InMemory: true, Now: func() time.Time { return clock }})
	site := server.Site(t, testorigin.SiteConfig{})
	version := site.SetRobots(testorigin.OK(rules))
	answer := send(t, server, site, "GET http://Other.example//a/../%7e{\xff?q HTTP/1.1\r\n"+
		"Host: Other.example:80\r\nUser-Agent:  Foo/1.0 \r\nX-Twice: 1\r\nx-twice: 2\r\nConnection: close\r\n\r\n")
	server.Close()

	exchanges := site.Exchanges()
	if len(exchanges) != 1 {
		t.Fatalf("recorded %+v, want one exchange", exchanges)
	}
	e := exchanges[0]
	got := fmt.Sprintf("%s|%s|%s|%s|%s|%s|%q|%d|%d|%s|%s|%v|%v", e.Method, e.Target, e.Proto, e.Path, e.Host,
		e.Header.Get("User-Agent"), e.Header.Values("X-Twice"), e.Status, e.Version, e.Behaviour, e.Err, e.Robots(), e.Site)
	want := fmt.Sprintf("GET|http://Other.example//a/../%%7e{\xff?q|HTTP/1.1|//a/../%%7e{\xff|Other.example:80|"+
		"Foo/1.0|[\"1\" \"2\"]|200|%d|page||false|%v", version, site.Origin())
	if got != want {
		t.Errorf("recorded\n%q, want\n%q", got, want)
	}
	if !e.Start.Equal(clock) || !e.End.Equal(clock) || e.Sent != int64(len(answer)) || e.Seq == 0 || e.Conn == 0 {
		t.Errorf("recorded %+v, want the server's clock and the %d bytes it sent", e, len(answer))
	}
}

func TestRequestBodies(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{InMemory: true})
	site := server.Site(t, testorigin.SiteConfig{})
	conn := dial(t, server, site)
	reader := bufio.NewReader(conn)

	exchange(t, conn, reader, "POST /length HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello")
	exchange(t, conn, reader, "POST /chunked HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n"+
		"5\r\nhello\r\n1\r\n!\r\n0\r\nX-Sum: 6\r\n\r\n")
	interim := exchange(t, conn, reader, "POST /continue HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
	if interim.StatusCode != 100 {
		t.Errorf("answer to Expect: 100-continue has status %d, want 100", interim.StatusCode)
	}
	exchange(t, conn, reader, "hi")
	exchange(t, conn, reader, "GET /last HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
	exchange(t, conn, reader, "GET /close HTTP/1.0\r\n\r\n")
	if _, err := reader.ReadByte(); err == nil {
		t.Error("the connection of an HTTP/1.0 client stays open")
	}

	want := []struct {
		path string
		size int64
		sum  string
	}{{"/length", 5, ""}, {"/chunked", 6, "6"}, {"/continue", 2, ""}, {"/last", 0, ""}, {"/close", 0, ""}}
	server.Close()
	exchanges := site.PageExchanges()
	if len(exchanges) != len(want) {
		t.Fatalf("recorded %d exchanges, want %d", len(exchanges), len(want))
	}
	for i, e := range exchanges {
		if e.Path != want[i].path || e.BodySize != want[i].size || e.Trailer.Get("X-Sum") != want[i].sum || e.Conn != exchanges[0].Conn {
			t.Errorf("recorded %+v, want %+v on one connection", e, want[i])
		}
	}
}

func TestBadRequestsAreRecorded(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{InMemory: true})
	for name, raw := range map[string]string{
		"no target":           "GET\r\n\r\n",
		"no version":          "GET /\r\n\r\n",
		"field without colon": "GET / HTTP/1.1\r\nHost\r\n\r\n",
		"space before colon":  "GET / HTTP/1.1\r\nHost : x\r\n\r\n",
		"field without name":  "GET / HTTP/1.1\r\n: x\r\n\r\n",
	} {
		site := server.Site(t, testorigin.SiteConfig{})
		answer := send(t, server, site, raw)
		if !strings.HasPrefix(answer, "HTTP/1.1 400 ") {
			t.Errorf("%s: got answer %q, want status 400", name, answer)
		}
		if e := site.Exchanges(); len(e) != 1 || e[0].Method != "" || e[0].Err == "" || len(site.PageExchanges()) != 0 {
			t.Errorf("%s: recorded %+v, want an exchange with an error", name, e)
		}
	}
	for name, raw := range map[string]string{
		"unknown transfer coding": "POST / HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
		"negative length":         "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
		"broken chunk":            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
	} {
		site := server.Site(t, testorigin.SiteConfig{})
		if answer := send(t, server, site, raw); answer != "" {
			t.Errorf("%s: got answer %q, want none", name, answer)
		}
		if e := site.Exchanges(); len(e) != 1 || !strings.Contains(e[0].Err, "request body") {
			t.Errorf("%s: recorded %+v, want an error of the request body", name, e)
		}
	}
}

func TestRecordIsBounded(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{InMemory: true, RecordSize: 10})
	site := server.Site(t, testorigin.SiteConfig{})
	transport := newTransport(t, server)
	for i := range 25 {
		site.SetRobots(testorigin.OK(fmt.Sprint("# ", i)))
		mustGet(t, transport, site.URL(fmt.Sprint("/", i)))
	}
	exchanges, history := site.Exchanges(), site.History()
	if len(exchanges) != 10 || len(history) != 10 || site.Dropped() != 15 {
		t.Fatalf("kept %d exchanges and %d changes and dropped %d, want 10, 10 and 15", len(exchanges), len(history), site.Dropped())
	}
	for i := range 10 {
		if want := fmt.Sprint("/", 15+i); exchanges[i].Path != want {
			t.Errorf("exchange %d is %s, want %s", i, exchanges[i].Path, want)
		}
		if want := 17 + i; history[i].Version != want || exchanges[i].Version != want {
			t.Errorf("change %d has version %d and its exchange %d, want %d", i, history[i].Version, exchanges[i].Version, want)
		}
	}
}

func TestExchangesOfAllSitesAreInOrder(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{InMemory: true})
	transport := newTransport(t, server)
	sites := []*testorigin.Site{server.Site(t, testorigin.SiteConfig{}), server.Site(t, testorigin.SiteConfig{})}
	for i := range 6 {
		mustGet(t, transport, sites[i%2].URL(fmt.Sprint("/", i)))
	}
	for i, e := range server.Exchanges() {
		if e.Path != fmt.Sprint("/", i) || e.Site != sites[i%2].Origin().String() {
			t.Errorf("exchange %d is %s%s", i, e.Site, e.Path)
		}
	}
}

func TestInForce(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := start
	server := testorigin.Start(t, testorigin.Config{InMemory: true, Now: func() time.Time { return now }})
	site := server.Site(t, testorigin.SiteConfig{}) // version 1 at second 0
	for second := 10; second <= 30; second += 10 {  // versions 2, 3, 4 at seconds 10, 20, 30
		now = start.Add(time.Duration(second) * time.Second)
		site.SetRobots(testorigin.OK(rules))
	}
	for _, tt := range []struct {
		first, last int
		want        string
	}{
		{-5, -1, "[]"},
		{-5, 0, "[1]"},
		{0, 9, "[1]"},
		{5, 10, "[1 2]"},
		{10, 10, "[2]"},
		{15, 15, "[2]"},
		{9, 25, "[1 2 3]"},
		{40, 50, "[4]"},
		{-5, 50, "[1 2 3 4]"},
	} {
		versions := make([]int, 0, 4)
		for _, c := range site.InForce(start.Add(time.Duration(tt.first)*time.Second), start.Add(time.Duration(tt.last)*time.Second)) {
			versions = append(versions, c.Version)
		}
		if got := fmt.Sprint(versions); got != tt.want {
			t.Errorf("in force from second %d to %d: versions %s, want %s", tt.first, tt.last, got, tt.want)
		}
	}
}
