package link

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// records are the addresses of names that the test process can resolve.
var records sync.Map // of netip.Addr, by names such as "redis.test."

// resolveHere makes the process resolve names with the records.
func resolveHere() {
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		go func() {
			defer func() { _ = server.Close() }()
			for size := make([]byte, 2); ; {
				if _, err := server.Read(size); err != nil {
					return
				}
				question := make([]byte, int(size[0])<<8|int(size[1]))
				if _, err := server.Read(question); err != nil {
					return
				}
				answer := answerTo(question)
				if _, err := server.Write(append([]byte{byte(len(answer) >> 8), byte(len(answer))}, answer...)); err != nil {
					return
				}
			}
		}()
		return client, nil
	}}
}

func answerTo(question []byte) []byte {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil {
		return nil
	}
	m.Response, m.RecursionAvailable, m.Additionals = true, true, nil
	q := m.Questions[0]
	a, known := records.Load(q.Name.String())
	switch {
	case !known:
		m.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		header := dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 1}
		m.Answers = []dnsmessage.Resource{{Header: header, Body: &dnsmessage.AResource{A: a.(netip.Addr).As4()}}}
	}
	answer, _ := m.Pack()
	return answer
}

// TestADNSRecordThatChanges checks that the link follows a name that has another address after a
// failover.
func TestADNSRecordThatChanges(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(old, next *redistest.Server){
		"demoted.redis.test": func(old, next *redistest.Server) {
			host, port, _ := net.SplitHostPort(address(next))
			old.Say("REPLICAOF " + host + " " + port)
		},
		"dead.redis.test": func(old, _ *redistest.Server) { old.Kill() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old, next := redistest.Start(t), redistest.Start(t)
			_, port, _ := net.SplitHostPort(address(old))
			listening(t, "127.0.0.3:"+port, address(next))
			records.Store(name+".", netip.MustParseAddr("127.0.0.1"))
			b := beating(t, "redis://"+name+":"+port)
			before := b.n.Load()
			records.Store(name+".", netip.MustParseAddr("127.0.0.3"))
			lose(old, next)
			b.returns(t, before, hasGateway(next))
		})
	}
}

// authority signs the certificates of the tests. The process trusts it like a system CA.
var authority struct {
	file        string
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func trustHere() {
	folder, err := os.MkdirTemp("", "link")
	if err != nil {
		panic(err)
	}
	authority.file = filepath.Join(folder, "ca.pem")
	der, key := signed(&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	authority.key = key
	if authority.certificate, err = x509.ParseCertificate(der); err == nil {
		err = os.WriteFile(authority.file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)
	}
	if err == nil {
		err = os.Setenv("SSL_CERT_FILE", authority.file)
	}
	if err != nil {
		panic(err)
	}
}

// signed makes a certificate, signed by the authority if there is one.
func signed(c *x509.Certificate) (der []byte, key *ecdsa.PrivateKey) {
	c.SerialNumber, c.Subject = big.NewInt(time.Now().UnixNano()), pkix.Name{CommonName: "test"}
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	parent, by := authority.certificate, authority.key
	if parent == nil {
		parent, by = c, key
	}
	if der, err = x509.CreateCertificate(rand.Reader, c, parent, key.Public(), by); err != nil {
		panic(err)
	}
	return der, key
}

// overTLS returns the options of a server that serves TLS at a port, with the certificate c.
func overTLS(t *testing.T, port string, c *x509.Certificate) []string {
	t.Helper()
	der, key := signed(c)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	files := filepath.Join(t.TempDir(), "server")
	for name, block := range map[string]*pem.Block{".pem": {Type: "CERTIFICATE", Bytes: der}, ".key": {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(files+name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return []string{
		"--tls-port", port, "--tls-cert-file", files + ".pem", "--tls-key-file", files + ".key", "--tls-ca-cert-file", authority.file,
		"--tls-auth-clients", "no", "--tls-replication", "yes",
	}
}

// TestSentinelOverTLS checks that with rediss:// the connection to the sentinel uses TLS too, and
// that each server must have a certificate for its own address: the sentinel for its name, and the
// primary for its IP address.
func TestSentinelOverTLS(t *testing.T) {
	t.Parallel()
	records.Store("sentinel.redis.test.", netip.MustParseAddr("127.0.0.1"))
	above := func(port string) string { // returns the port for TLS
		n, _ := strconv.Atoi(port)
		return strconv.Itoa(n + 10000)
	}
	ofAddress := func() *x509.Certificate { return &x509.Certificate{IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}} }
	primary, _ := node(t, func(own string) []string { return plain(own, overTLS(t, above(own), ofAddress())...) })
	_, port, _ := net.SplitHostPort(primary)
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	if err := os.WriteFile(file, fmt.Appendf(nil, "sentinel monitor acme 127.0.0.1 %s 1\n", above(port)), 0o600); err != nil {
		t.Fatal(err)
	}
	sentinel, _ := node(t, func(own string) []string {
		c := &x509.Certificate{DNSNames: []string{"sentinel.redis.test"}}
		return append([]string{file, "--sentinel", "--port", own, "--bind", "127.0.0.1"}, overTLS(t, above(own), c)...)
	})
	redistest.Eventually(t, "the sentinel to know the primary", func() bool { return strings.Contains(ask(sentinel, "INFO sentinel"), "status=ok") })
	_, port, _ = net.SplitHostPort(sentinel)
	beating(t, "rediss://sentinel.redis.test:"+above(port)+"?master_set=acme")
	if got := ask(primary, "ZCARD {crawlgate}:fleet:gateways"); got != ":1\r\n" {
		t.Errorf("the primary has %q gateways, want 1", got)
	}
}
