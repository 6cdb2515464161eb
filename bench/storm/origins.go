package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"
)

// origins is one server for all origins: on the loopback device, Linux answers at every address of
// 127.0.0.0/8, and each host is an origin.
type origins struct {
	server *http.Server
	port   int
	hang   int // percent

	mu    sync.Mutex
	asked map[string]int // by host: number of robots.txt fetches
}

func startOrigins(ctx context.Context, s settings) (*origins, error) {
	// All addresses of the loopback device, and none of any other.
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		controlErr := c.Control(func(fd uintptr) { err = syscall.BindToDevice(int(fd), "lo") })
		if controlErr != nil {
			return controlErr
		}
		return err
	}}
	l, err := lc.Listen(ctx, "tcp4", "0.0.0.0:0")
	if err != nil {
		return nil, err
	}
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return nil, fmt.Errorf("listening at %v: not a TCP address", l.Addr())
	}
	o := &origins{port: addr.Port, hang: s.hang, asked: make(map[string]int)}
	o.server = &http.Server{Handler: o, ReadHeaderTimeout: time.Minute}
	go func() { _ = o.server.Serve(l) }() // ends with close
	return o, nil
}

func (o *origins) close() { _ = o.server.Close() }

// known and fresh are the URLs of a page of the i-th known and the i-th new origin.
func (o *origins) known(i int) string { return o.url(1, i) }
func (o *origins) fresh(i int) string { return o.url(2, i) }

// private returns a page of the i-th known origin that its robots.txt disallows.
func (o *origins) private(i int) string { return strings.Replace(o.known(i), "/page", "/private", 1) }

func (o *origins) url(network, i int) string {
	return fmt.Sprintf("http://127.%d.%d.%d:%d/page", network, i/250, i%250+1, o.port)
}

// hangs reports whether the i-th new origin never answers.
func (o *origins) hangs(i int) bool { return i*37%100 < o.hang }

// ServeHTTP answers for the requested origin.
func (o *origins) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/robots.txt" {
		_, _ = io.WriteString(w, "a page\n")
		return
	}
	host, _, _ := strings.Cut(r.Host, ":")
	o.mu.Lock()
	o.asked[host]++
	o.mu.Unlock()
	if !strings.HasPrefix(host, "127.2.") {
		_, _ = io.WriteString(w, "User-agent: *\nDisallow: /private\n")
		return
	}
	var a, b int
	_, _ = fmt.Sscanf(host, "127.2.%d.%d", &a, &b)
	if o.hangs(a*250 + b - 1) {
		<-r.Context().Done()
		return
	}
	select {
	case <-time.After(100 * time.Millisecond):
		_, _ = io.WriteString(w, "User-agent: *\nDisallow: /private\n")
	case <-r.Context().Done():
	}
}

// fetches returns how many new origins got a request for robots.txt, and how many such requests
// known origins got.
func (o *origins) fetches() (fresh, known int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for host, n := range o.asked {
		if strings.HasPrefix(host, "127.2.") {
			fresh++
		} else {
			known += n
		}
	}
	return fresh, known
}
