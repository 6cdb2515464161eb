// Package testorigin provides an origin server that misbehaves on demand, for the tests of
// robots.txt retrieval, enforcement and pacing.
//
// A [Server] has [Site]s. A site is one origin, http or https, at its own address in 127.0.0.0/16
// with a port that the kernel chose. Its answer to GET /robots.txt is a [Behaviour], which a test
// may replace at any time:
//
//	server := testorigin.Start(t, testorigin.Config{})
//	site := server.Site(t, testorigin.SiteConfig{Scheme: "https", Paths: []string{"/a", "/b"}})
//	site.SetRobots(testorigin.OK("User-agent: *\nDisallow: /a\n"))
//	...
//	site.SetRobots(testorigin.HangInBody("User-agent: *\nDisallow: /\n", 20))
//
// Every other path is answered with a small HTML page. The site keeps a limited record of requests
// and their answers ([Site.Exchanges]) and of the behaviours that it used ([Site.History]), all by
// its own clock, so that an oracle can determine afterwards what a client had to know and when.
//
// With [Config.InMemory] there are no sockets: sites can only be reached with [Server.DialContext],
// over pipes, so that sites that hang and drip can be tested in a testing/synctest bubble.
//
// Sites use their own implementation of HTTP/1.1, because net/http refuses to send most of these
// answers. They do not support HTTP/2.
package testorigin

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Config configures a [Server]. The zero value is a server on the loopback
// network.
type Config struct {
	// InMemory makes sites have no sockets: only Server.DialContext reaches them.
	InMemory bool
	// MaxConns limits the connections served at once; more wait to be accepted. 0 means 4096.
	MaxConns int
	// RecordSize limits the exchanges that each site keeps, and the changes of behaviour; the
	// oldest are dropped first. 0 means 4096.
	RecordSize int
	// Now is the clock of the record; nil means time.Now.
	Now func() time.Time
}

const (
	defaultMaxConns   = 4096
	defaultRecordSize = 4096
)

// Server runs sites until it is closed. Its methods are safe for concurrent use.
type Server struct {
	cfg       Config
	authority *authority
	slots     chan struct{} // one per connection
	lastSeq   atomic.Uint64
	lastConn  atomic.Uint64

	mu       sync.Mutex
	closed   bool
	sites    map[string]*Site // by host:port
	lastAddr netip.Addr
	running  sync.WaitGroup
}

// TB is the part of testing.TB that [Start] and [Server.Site] need.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
}

// Start returns a server that is closed when the test ends.
func Start(tb TB, cfg Config) *Server {
	tb.Helper()
	s, err := New(cfg)
	if err != nil {
		tb.Fatalf("starting an origin server: %v", err)
		return nil
	}
	tb.Cleanup(s.Close)
	return s
}

// ReservePort returns a port that is free at every IPv4 address of this machine, and keeps the
// kernel from giving it to programs that ask for a free port until the test ends. Listening on it
// by its number still works.
func ReservePort(tb TB) uint16 {
	tb.Helper()
	port, release, err := reservePort(netip.IPv4Unspecified())
	if err != nil {
		tb.Fatalf("reserving a port: %v", err)
		return 0
	}
	tb.Cleanup(release)
	return port
}

// New returns a server without sites. The caller must close it.
func New(cfg Config) (*Server, error) {
	if cfg.MaxConns <= 0 {
		cfg.MaxConns = defaultMaxConns
	}
	if cfg.RecordSize <= 0 {
		cfg.RecordSize = defaultRecordSize
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	authority, err := newAuthority(time.Now())
	if err != nil {
		return nil, fmt.Errorf("making a test CA: %w", err)
	}
	return &Server{
		cfg:       cfg,
		authority: authority,
		slots:     make(chan struct{}, cfg.MaxConns),
		sites:     make(map[string]*Site),
		lastAddr:  netip.AddrFrom4([4]byte{127, 0, 0, 0}),
	}, nil
}

// Close ends every connection, wait and listener, and returns when nothing of the server runs any
// more. Records can still be read. It may be called again.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	for _, site := range s.Sites() {
		site.close()
	}
	s.running.Wait()
}

// CAPool returns a pool with the CA that signs the certificates of all sites.
func (s *Server) CAPool() *x509.CertPool { return s.authority.pool() }

// CAPEM returns that CA's certificate in PEM.
func (s *Server) CAPEM() []byte { return s.authority.pem() }

// Site is AddSite for tests.
func (s *Server) Site(tb TB, cfg SiteConfig) *Site {
	tb.Helper()
	site, err := s.AddSite(cfg)
	if err != nil {
		tb.Fatalf("adding a site: %v", err)
		return nil
	}
	return site
}

// AddSite starts a site. It runs until the server is closed.
func (s *Server) AddSite(cfg SiteConfig) (*Site, error) {
	site, err := newSite(s, cfg)
	if err != nil {
		return nil, fmt.Errorf("starting a site: %w", err)
	}
	s.mu.Lock()
	key := site.origin.HostPort()
	_, taken := s.sites[key]
	closed := s.closed
	if !taken && !closed {
		s.sites[key] = site
	}
	s.mu.Unlock()
	switch {
	case closed:
		site.close()
		return nil, errors.New("starting a site: the server is closed")
	case taken:
		site.close()
		return nil, fmt.Errorf("starting a site: %s is taken", key)
	}
	site.SetRobots(Behaviour{})
	return site, nil
}

// Sites returns all sites in order of their addresses.
func (s *Server) Sites() []*Site {
	s.mu.Lock()
	defer s.mu.Unlock()
	sites := make([]*Site, 0, len(s.sites))
	for _, site := range s.sites {
		sites = append(sites, site)
	}
	slices.SortFunc(sites, func(a, b *Site) int {
		return strings.Compare(a.origin.HostPort(), b.origin.HostPort())
	})
	return sites
}

// Exchanges returns the records of all sites in order of arrival.
func (s *Server) Exchanges() []Exchange {
	var all []Exchange
	for _, site := range s.Sites() {
		all = append(all, site.Exchanges()...)
	}
	slices.SortFunc(all, func(a, b Exchange) int { return cmp.Compare(a.Seq, b.Seq) })
	return all
}

// DialContext connects to the site whose origin has this host:port, whatever the host resolves to
// elsewhere. It can be used as the DialContext of an http.Transport: an unknown site is a DNS
// error, and a site that refuses connections refuses them.
func (s *Server) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	s.mu.Lock()
	site := s.sites[address]
	s.mu.Unlock()
	if site == nil {
		host, _, _ := net.SplitHostPort(address)
		return nil, &net.OpError{Op: "dial", Net: network, Err: &net.DNSError{
			Err: "no such host", Name: host, IsNotFound: true,
		}}
	}
	if s.cfg.InMemory {
		return site.dialMemory(ctx, network)
	}
	var d net.Dialer
	return d.DialContext(ctx, network, site.listen.String())
}

// spawn runs f unless the server is closed. Close waits for it.
func (s *Server) spawn(f func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.running.Go(f)
	return true
}

// nextAddr returns the next address in 127.0.0.0/16, so that each site is a separate host.
func (s *Server) nextAddr() netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastAddr = s.lastAddr.Next()
	if last := s.lastAddr.As4(); last[1] != 0 {
		s.lastAddr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return s.lastAddr
}
