package testorigin

import (
	"net"
	"testing"
	"time"
)

// TestComeUpBesideAFork checks that a process that is being forked while a site goes down has
// a copy of its listener, as this test has here. The site waits for its end.
func TestComeUpBesideAFork(t *testing.T) {
	t.Parallel()
	server := Start(t, Config{})
	site := server.Site(t, SiteConfig{})
	listener, ok := site.listener.(*net.TCPListener)
	if !ok {
		t.Fatalf("the listener is a %T", site.listener)
	}
	forked, err := listener.File()
	if err != nil {
		t.Fatal(err)
	}
	site.SetRobots(Refuse())
	time.AfterFunc(100*time.Millisecond, func() { _ = forked.Close() })
	site.SetRobots(OK("User-agent: *\n")) // panics if it does not get its port
	conn, err := net.Dial("tcp", site.listen.String())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}
