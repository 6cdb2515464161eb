//go:build slow

package egress

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crawlgate/crawlgate/integration/rig"
)

// The address of the site of these tests.
const (
	siteAddr4 = "192.0.2.80"
	siteAddr6 = "2001:db8:80::80"
)

// realSite is a site in its own namespace, at the ports of http, https, HTTP/3 and DNS, and some
// more.
type realSite struct {
	netns  *netns
	caFile string
	pages  atomic.Int64
}

func startRealSite(t *testing.T, n *netns, dir string) *realSite {
	t.Helper()
	n.sh("ip addr add " + siteAddr4 + "/32 dev lo; ip -6 addr add " + siteAddr6 + "/128 dev lo nodad")
	s := &realSite{netns: n, caFile: filepath.Join(dir, "site.pem")}
	certificate := wayOutCertificate(t)
	pem := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]})
	if err := os.WriteFile(s.caFile, pem, 0o644); err != nil {
		t.Fatal(err)
	}
	for port, serve := range map[string]func(*http.Server, net.Listener) error{
		"80":  (*http.Server).Serve,
		"443": func(srv *http.Server, l net.Listener) error { return srv.ServeTLS(l, "", "") },
	} {
		var l net.Listener
		if err := n.as(0, func() (err error) {
			l, err = new(net.ListenConfig).Listen(t.Context(), "tcp", ":"+port)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		server := &http.Server{
			Handler: s, ReadHeaderTimeout: patience,
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		}
		t.Cleanup(func() { _ = server.Close() })
		go func() { _ = serve(server, l) }()
	}
	n.listen(0, []int{53, 3128, 8888}, []int{53, 443}, siteAddr4, siteAddr6)
	return s
}

func (s *realSite) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/robots.txt" {
		_, _ = io.WriteString(w, "User-agent: *\nDisallow: /closed\n")
		return
	}
	s.pages.Add(1)
	_, _ = io.WriteString(w, "a page\n")
}

// settled waits until all connections have ended.
func (s *realSite) settled() {
	s.netns.t.Helper()
	rig.Eventually(s.netns.t, "connections to end", func() bool { return s.netns.sh("ss -Htn") == "" })
}

// wayOutCertificate returns a self-signed certificate for the site's addresses.
func wayOutCertificate(t *testing.T) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "site"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.ParseIP(siteAddr4), net.ParseIP(siteAddr6)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// listeners are servers that answer with a given text and count their answers.
type listeners struct {
	met     atomic.Int64
	closers []io.Closer
}

// listen starts servers of a user at ports of some addresses.
func (n *netns) listen(uid int, tcp, udp []int, addrs ...string) *listeners {
	n.t.Helper()
	l := new(listeners)
	var config net.ListenConfig
	for _, addr := range addrs {
		err := n.as(uid, func() error {
			for _, port := range tcp {
				listener, err := config.Listen(n.t.Context(), "tcp", net.JoinHostPort(addr, strconv.Itoa(port)))
				if err != nil {
					return err
				}
				l.closers = append(l.closers, listener)
				go l.accept(listener)
			}
			for _, port := range udp {
				conn, err := config.ListenPacket(n.t.Context(), "udp", net.JoinHostPort(addr, strconv.Itoa(port)))
				if err != nil {
					return err
				}
				l.closers = append(l.closers, conn)
				go l.receive(conn)
			}
			return nil
		})
		if err != nil {
			n.t.Fatal(err)
		}
	}
	n.t.Cleanup(l.close)
	return l
}

func (l *listeners) close() {
	for _, c := range l.closers {
		_ = c.Close()
	}
}

func (l *listeners) accept(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		l.met.Add(1)
		go func() {
			defer conn.Close()
			_, _ = io.Copy(conn, io.LimitReader(conn, 1<<10))
		}()
	}
}

func (l *listeners) receive(conn net.PacketConn) {
	buf := make([]byte, 512)
	for {
		n, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		l.met.Add(1)
		_, _ = conn.WriteTo(buf[:n], from)
	}
}

// wayOutClient is one way to reach the site, or another program on the gateway's machine. It fails
// without an answer.
type wayOutClient struct {
	name string
	run  func(uid int) error
}

// clients returns the clients that know no proxy, or that bypass it.
func (w *wayOut) clients() []wayOutClient {
	proxy := []string{"http_proxy=http://" + w.proxy4 + ":3128", "https_proxy=http://" + w.proxy4 + ":3128"}
	program := func(name string, env []string, args ...string) wayOutClient {
		return wayOutClient{name, func(uid int) error {
			ctx, cancel := context.WithTimeout(w.t.Context(), clientTimeout)
			defer cancel()
			out := new(rig.Tail)
			if err := w.crawler.command(ctx, uid, env, out, args...); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		}}
	}
	socket := func(name string, do func() error) wayOutClient {
		return wayOutClient{name, func(uid int) error { return w.crawler.as(uid, do) }}
	}
	tcp := func(name, addr, port string) wayOutClient {
		return socket(name, func() error { return dialEcho("tcp", net.JoinHostPort(addr, port), clientTimeout) })
	}
	udp := func(name, addr, port string) wayOutClient {
		return socket(name, func() error { return datagram(net.JoinHostPort(addr, port)) })
	}
	clients := []wayOutClient{
		program("curl", nil, "curl", "-sSf", "http://"+siteAddr4+"/"),
		program("curl, https", nil, "curl", "-sSf", "--cacert", w.site.caFile, "https://"+siteAddr4+"/"),
		program("curl, IPv6", nil, "curl", "-gsSf", "http://["+siteAddr6+"]/"),
		program("curl, https, IPv6", nil, "curl", "-gsSf", "--cacert", w.site.caFile, "https://["+siteAddr6+"]/"),
		program("curl that bypasses its proxy", proxy, "curl", "-sSf", "--noproxy", "*", "http://"+siteAddr4+"/"),
		program("wget", nil, "wget", "-qO-", "--tries=1", "http://"+siteAddr4+"/"),
		program("wget that bypasses its proxy", proxy, "wget", "-qO-", "--tries=1", "--no-proxy", "http://["+siteAddr6+"]/"),
		tcp("TCP to the gateway's port at the site", siteAddr4, "3128"),
		tcp("TCP, IPv6", siteAddr6, "8888"),
		tcp("DNS over TCP", siteAddr4, "53"),
		socket("Multipath TCP", func() error { return dialMultipath(net.JoinHostPort(siteAddr4, "8888")) }),
		udp("QUIC", siteAddr4, "443"), udp("QUIC, IPv6", siteAddr6, "443"),
		udp("DNS", siteAddr4, "53"), udp("DNS, IPv6", siteAddr6, "53"),
		socket("ping", func() error { return ping(siteAddr4) }),
		socket("ping, IPv6", func() error { return ping(siteAddr6) }),
		tcp("another proxy beside the gateway", w.proxy4, "8888"),
		tcp("another proxy beside the gateway, IPv6", w.proxy6, "8888"),
		udp("a resolver beside the gateway", w.proxy4, "53"), udp("UDP at the gateway's port", w.proxy6, "3128"),
	}
	if w.gateway == w.crawler {
		clients = append(clients, socket("the admin endpoint", func() error {
			conn, err := net.DialTimeout("tcp", "127.0.0.1:2019", clientTimeout)
			if err == nil {
				_ = conn.Close()
			}
			return err
		}))
	}
	return clients
}

// dialEcho fails unless the server echoes its bytes.
func dialEcho(network, addr string, timeout time.Duration) error {
	conn, err := net.DialTimeout(network, addr, timeout)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(timeout))
	return echo(conn)
}

func echo(conn net.Conn) error {
	if _, err := io.WriteString(conn, "hello"); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 5))
	return err
}

func dialMultipath(addr string) error {
	d := net.Dialer{Timeout: clientTimeout}
	d.SetMultipathTCP(true)
	conn, err := d.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	return echo(conn)
}

// datagram repeats its bytes until an answer comes, like QUIC and DNS. A refusal comes as an error;
// the system sends a bounded number of them a second.
func datagram(addr string) error {
	err := os.ErrDeadlineExceeded
	for deadline := time.Now().Add(clientTimeout); errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(deadline); {
		err = dialEcho("udp", addr, time.Second)
	}
	return err
}

// ping sends an ICMP echo from the sockets that need no privileges.
func ping(addr string) error {
	family, protocol, request := unix.AF_INET6, unix.IPPROTO_ICMPV6, byte(128)
	var to unix.Sockaddr = &unix.SockaddrInet6{Addr: [16]byte(net.ParseIP(addr))}
	if ip := net.ParseIP(addr).To4(); ip != nil {
		family, protocol, request = unix.AF_INET, unix.IPPROTO_ICMP, 8
		to = &unix.SockaddrInet4{Addr: [4]byte(ip)}
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM, protocol)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return err
	}
	if err := unix.Connect(fd, to); err != nil {
		return err
	}
	err = unix.EAGAIN
	for deadline := time.Now().Add(clientTimeout); errors.Is(err, unix.EAGAIN) && time.Now().Before(deadline); {
		if _, err = unix.Write(fd, []byte{request, 0, 0, 0, 0, 0, 0, 1}); err == nil {
			_, err = unix.Read(fd, make([]byte, 64))
		}
	}
	return err
}

// throughGateway runs the same programs with the gateway as their proxy. They get pages over http
// and https, but not those that robots.txt disallows.
func (w *wayOut) throughGateway() {
	w.t.Helper()
	run := func(env []string, args ...string) (string, error) {
		ctx, cancel := context.WithTimeout(w.t.Context(), patience)
		defer cancel()
		out := new(rig.Tail)
		err := w.crawler.command(ctx, crawlerUser, env, out, args...)
		return out.String(), err
	}
	root, err := run(nil, "curl", "-sSf", "http://"+w.proxy4+":3128/ca.crt")
	if err != nil {
		w.t.Fatalf("the gateway's certificate: %v %s", err, root)
	}
	file := filepath.Join(w.dir, "ca.crt")
	if err := os.WriteFile(file, []byte(root), 0o644); err != nil {
		w.t.Fatal(err)
	}
	for _, proxy := range []string{"http://" + w.proxy4 + ":3128", "http://[" + w.proxy6 + "]:3128"} {
		env := []string{"http_proxy=" + proxy, "https_proxy=" + proxy, "CURL_CA_BUNDLE=" + file}
		for _, site := range []string{"http://" + siteAddr4, "https://" + siteAddr4, "http://[" + siteAddr6 + "]", "https://[" + siteAddr6 + "]"} {
			before := w.site.pages.Load()
			programs := [][]string{{"curl", "-gsS", site + "/open"}, {"wget", "-qO-", "--tries=1", "--ca-certificate=" + file, site + "/open"}}
			if strings.HasPrefix(site, "https://[") {
				programs = programs[:1] // wget sends an IPv6 address in CONNECT without its brackets
			}
			for _, args := range programs {
				if out, err := run(env, args...); err != nil || out != "a page\n" {
					w.t.Errorf("%q by %s: error %v, output %q", args, proxy, err, out)
				}
			}
			if out, err := run(env, "curl", "-gs", "-o", "/dev/null", "-w", "%{http_code}", site+"/closed"); err != nil || out != "403" {
				w.t.Errorf("%s/closed by %s: error %v, status %s, want 403", site, proxy, err, out)
			}
			if n := w.site.pages.Load() - before; n != int64(len(programs)) {
				w.t.Errorf("%s by %s: the site served %d pages, want %d", site, proxy, n, len(programs))
			}
		}
	}
}
