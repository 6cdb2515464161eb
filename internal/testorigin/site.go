package testorigin

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/crawlgate/crawlgate/origin"
)

const robotsPath = "/robots.txt"

// SiteConfig configures a [Site]. The zero value is an http site without robots.txt at the next
// free address.
type SiteConfig struct {
	// Scheme is "http" or "https"; empty means http.
	Scheme string
	// Host is the name in the site's origin and certificate. Only
	// Server.DialContext finds a site by name. Empty means the site's address.
	Host string
	// Port is the port in the site's origin. If it differs from the one it listens on, only
	// Server.DialContext finds the site. 0 means the one that the kernel chose, or the scheme's
	// default for a server in memory.
	Port uint16
	// Paths are the pages that the site links to. The page at / links to all, and each other page
	// to its successor and to /.
	Paths []string
}

// Site is one origin. Its methods are safe for concurrent use.
type Site struct {
	server *Server
	origin origin.Origin
	listen netip.AddrPort // where it listens, or would if it had a socket
	paths  []string
	robots atomic.Pointer[inForce]

	certMu sync.Mutex
	certs  map[Certificate]*tls.Certificate

	mu        sync.Mutex
	closed    bool
	pages     Behaviour
	routes    map[string]Behaviour
	history   ring[Change]
	exchanges ring[Exchange]
	conns     map[net.Conn]struct{}
	listener  net.Listener // nil while connections are refused
	release   func()       // releases the reserved port
}

// inForce is a behaviour of /robots.txt with its version.
type inForce struct {
	Behaviour
	version int
}

func newSite(server *Server, cfg SiteConfig) (*Site, error) {
	s := &Site{
		server:    server,
		paths:     slices.Clone(cfg.Paths),
		certs:     make(map[Certificate]*tls.Certificate),
		routes:    make(map[string]Behaviour),
		history:   ring[Change]{max: server.cfg.RecordSize},
		exchanges: ring[Exchange]{max: server.cfg.RecordSize},
		conns:     make(map[net.Conn]struct{}),
		release:   func() {},
	}
	addr := server.nextAddr()
	port := cfg.Port
	if server.cfg.InMemory {
		s.listen = netip.AddrPortFrom(addr, port)
	} else {
		reserved, release, err := reservePort(addr)
		if err != nil {
			return nil, fmt.Errorf("reserving a port of %s: %w", addr, err)
		}
		s.listen, s.release = netip.AddrPortFrom(addr, reserved), release
		if port == 0 {
			port = reserved
		}
	}
	var err error
	if s.origin, err = originOf(cfg.Scheme, cfg.Host, addr, port); err != nil {
		s.release()
		return nil, err
	}
	return s, nil
}

func originOf(scheme, host string, addr netip.Addr, port uint16) (origin.Origin, error) {
	if scheme == "" {
		scheme = "http"
	}
	if scheme != "http" && scheme != "https" {
		return origin.Origin{}, fmt.Errorf("scheme %q is neither http nor https", scheme)
	}
	authority := host
	if authority == "" {
		authority = addr.String()
	}
	if port != 0 {
		authority += ":" + strconv.Itoa(int(port))
	}
	return origin.FromAuthority(scheme, authority)
}

// Origin returns the site's origin.
func (s *Site) Origin() origin.Origin { return s.origin }

// URL returns the absolute URL of a path of the site.
func (s *Site) URL(path string) string { return s.origin.String() + path }

// SetRobots sets the behaviour of /robots.txt to b and returns its version: 1 and up, as in
// exchanges and history. Each request is answered by the behaviour that is set when its head has
// arrived. The zero Behaviour is a site without robots.txt, with which a site starts.
//
// With a behaviour that refuses connections, the whole site goes down, including existing
// connections, until another one is set. With one that breaks the TLS handshake, a request for
// /robots.txt on an older connection is reset.
//
// SetRobots panics if b is for https and the site is not.
func (s *Site) SetRobots(b Behaviour) int {
	if b.NeedsTLS() && s.origin.Scheme != "https" {
		panic(fmt.Sprintf("testorigin: behaviour %q needs an https site, which %s is not", b.Name, s.origin))
	}
	if b.serve == nil {
		b = Status(404)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next := &inForce{Behaviour: b, version: 1}
	if last := s.robots.Load(); last != nil {
		next.version = last.version + 1
	}
	// With this order, no exchange with this version starts before From.
	s.history.push(Change{
		Version: next.version, From: s.server.cfg.Now(), Behaviour: b.Name, Meaning: b.Meaning, Rules: b.Rules,
	})
	s.robots.Store(next)
	if b.where == atDial {
		s.goDown()
	} else {
		s.comeUp()
	}
	return next.version
}

// SetRobotsChain sets a chain of redirects: /robots.txt redirects to /hop/1, that to /hop/2, and
// the hops-th redirect leads to a path with the behaviour last. It returns the version, which means
// the same as last if a client has to follow that many redirects (RFC 9309 section 2.3.1.2: five),
// and absent otherwise.
func (s *Site) SetRobotsChain(hops int, last Behaviour) int {
	const mustFollow = 5
	path := func(hop int) string { return "/hop/" + strconv.Itoa(hop) }
	s.SetPath(path(hops), last)
	for hop := hops - 1; hop > 0; hop-- {
		s.SetPath(path(hop), Redirect(302, path(hop+1)))
	}
	first := Redirect(302, path(1))
	first.Name = fmt.Sprintf("%d redirects to %s", hops, last.Name)
	first.Meaning, first.Rules = last.Meaning, last.Rules
	if hops > mustFollow {
		first.Meaning, first.Rules = MeansAbsent, nil
	}
	return s.SetRobots(first)
}

// SetPath sets the behaviour of one other path, matched without its query. The zero Behaviour
// restores the site's page. SetPath panics if b works below HTTP, where a path is not known yet.
func (s *Site) SetPath(path string, b Behaviour) {
	mustBeHTTP(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	if b.serve == nil {
		delete(s.routes, path)
		return
	}
	s.routes[path] = b
}

// SetPages sets the behaviour of all paths without their own. The zero Behaviour is the site's HTML
// pages. SetPages panics like SetPath.
func (s *Site) SetPages(b Behaviour) {
	mustBeHTTP(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pages = b
}

func mustBeHTTP(b Behaviour) {
	if b.where != atRequest {
		panic(fmt.Sprintf("testorigin: behaviour %q is for a whole site, not for a path", b.Name))
	}
}

// behaviourFor returns the behaviour of a path, and the present version of /robots.txt.
func (s *Site) behaviourFor(path string) (Behaviour, int) {
	robots := s.robots.Load()
	if path == robotsPath {
		return robots.Behaviour, robots.version
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if b, ok := s.routes[path]; ok {
		return b, robots.version
	}
	if s.pages.serve != nil {
		return s.pages, robots.version
	}
	return htmlPages, robots.version
}

// goDown refuses connections from now on and ends the existing ones.
func (s *Site) goDown() {
	if s.listener != nil {
		_ = s.listener.Close() // an error would not matter here
		s.listener = nil
	}
	for conn := range s.conns {
		reset(conn)
	}
}

// comeUp listens unless the site already does.
func (s *Site) comeUp() {
	if s.closed || s.listener != nil || s.server.cfg.InMemory {
		return
	}
	listener, err := listenAgain(s.listen.String())
	if err != nil {
		panic(fmt.Sprintf("testorigin: listening again on the reserved port %s: %v", s.listen, err))
	}
	if !s.server.spawn(func() { s.accept(listener) }) {
		_ = listener.Close()
		return
	}
	s.listener = listener
}

const (
	// listenTries and listenPause limit how long a site waits for its own port: 5 s is far longer
	// than a fork takes on any machine.
	listenTries = 500
	listenPause = 10 * time.Millisecond
)

// listenAgain listens at an address that only the site itself can have. A process that is just
// being started also has it: between fork and exec it has a copy of every listener, even of one
// that has been closed. That soon passes.
func listenAgain(addr string) (listener net.Listener, err error) {
	lc := net.ListenConfig{Control: listenStamped}
	for range listenTries {
		listener, err = lc.Listen(context.Background(), "tcp", addr)
		if !errors.Is(err, syscall.EADDRINUSE) {
			return listener, err
		}
		time.Sleep(listenPause)
	}
	return nil, err
}

// accept serves the connections of a listener until it is closed.
func (s *Site) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		s.server.slots <- struct{}{}
		if !s.start(stamped(conn)) {
			<-s.server.slots
		}
	}
}

// start serves a connection, for which the caller has taken a slot, in a new goroutine. It returns
// false, and closes conn, if the site is down.
func (s *Site) start(conn net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	down := s.closed || s.robots.Load().where == atDial
	if !down {
		s.conns[conn] = struct{}{}
		down = !s.server.spawn(func() {
			s.serve(conn)
			s.mu.Lock()
			delete(s.conns, conn)
			s.mu.Unlock()
			<-s.server.slots
		})
	}
	if down {
		delete(s.conns, conn)
		reset(conn)
	}
	return !down
}

func (s *Site) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.goDown()
	s.release()
}
