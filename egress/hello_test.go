package egress

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
)

// captureHello gives the octets that crypto/tls begins with.
func captureHello(tb testing.TB, c *tls.Config) []byte {
	tb.Helper()
	client, server := net.Pipe()
	c.InsecureSkipVerify = true
	done := make(chan struct{})
	go func() {
		defer close(done)
		tls.Client(client, c).Handshake()
	}()
	var header [recordHeaderSize]byte
	if _, err := io.ReadFull(server, header[:]); err != nil {
		tb.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(header[3:]))
	if _, err := io.ReadFull(server, body); err != nil {
		tb.Fatal(err)
	}
	server.Close()
	<-done
	return append(header[:], body...)
}

// split puts the handshake message of one record into records of size octets.
func split(record []byte, size int) []byte {
	var out []byte
	for part := range slices.Chunk(record[recordHeaderSize:], size) {
		out = append(out, record[0], record[1], record[2], byte(len(part)>>8), byte(len(part)))
		out = append(out, part...)
	}
	return out
}

func TestParseClientHello(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		config *tls.Config
		want   string
		alpn   []string
	}{
		{"name", &tls.Config{ServerName: "www.example.com"}, "www.example.com", nil},
		{"case is kept", &tls.Config{ServerName: "WWW.Example.com"}, "WWW.Example.com", nil},
		{"address", &tls.Config{ServerName: "192.0.2.1"}, "", nil}, // Go sends none for addresses
		{"none", &tls.Config{}, "", nil},
		{"protocols", &tls.Config{ServerName: "a.example", NextProtos: []string{"h2", "http/1.1"}}, "a.example", []string{"h2", "http/1.1"}},
		{"TLS 1.2", &tls.Config{ServerName: "a.example", MaxVersion: tls.VersionTLS12}, "a.example", nil},
		{"TLS 1.0", &tls.Config{ServerName: "a.example", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10}, "a.example", nil},
	}
	for _, tt := range tests {
		whole := captureHello(t, tt.config)
		for _, octets := range [][]byte{whole, append(bytes.Clone(whole), "more"...), split(whole, 1), split(whole, 3), split(whole, 100)} {
			got, err := ParseClientHello(octets)
			if err != nil || got.ServerName != tt.want || !slices.Equal(got.ALPN, tt.alpn) {
				t.Errorf("%s in %d octets: %+v, %v", tt.name, len(octets), got, err)
			}
		}
		for n := range whole {
			if _, err := ParseClientHello(whole[:n]); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s cut at %d: %v, want more to be asked for", tt.name, n, err)
			}
		}
	}
}

func TestParseClientHelloRefuses(t *testing.T) {
	t.Parallel()
	good := captureHello(t, &tls.Config{ServerName: "a.example"})
	change := func(at int, to byte) []byte { b := bytes.Clone(good); b[at] = to; return b }
	tests := map[string][]byte{
		"HTTP":           []byte("GET / HTTP/1.1\r\n\r\n"),
		"alert":          {21, 3, 1, 0, 2, 2, 70},
		"SSL 2.0":        {0x80, 0x2e, 1, 3, 1},
		"other version":  change(1, 2),
		"no ClientHello": change(5, 2),
		"empty record":   {22, 3, 1, 0, 0, 1},
		"long record":    {22, 3, 1, 0x40, 1, 1},
		"long message":   {22, 3, 1, 0, 4, 1, 1, 0, 0},
		"length too short": func() []byte {
			b := bytes.Clone(good)
			b[8]-- // the message ends before its extensions
			return b
		}(),
	}
	for name, octets := range tests {
		if got, err := ParseClientHello(octets); err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	crumbs := bytes.Repeat([]byte{22, 3, 1, 0, 1, 1}, 12000)
	crumbs = append([]byte{22, 3, 1, 0, 4, 1, 0, 0x7f, 0xfc}, crumbs...)
	if _, err := ParseClientHello(crumbs[:2*maxHello+1]); errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error("more is asked for after 64 KiB")
	}
}

func TestServerNameRefusesTwo(t *testing.T) {
	t.Parallel()
	one := []byte{0, 0, 1, 'a'}
	list := func(entries ...[]byte) []byte {
		b := bytes.Join(entries, nil)
		return append([]byte{byte(len(b) >> 8), byte(len(b))}, b...)
	}
	if name, ok := serverName(list(one)); !ok || name != "a" {
		t.Errorf("one name: %q, %v", name, ok)
	}
	for _, bad := range [][]byte{nil, list(), list(one, one), list([]byte{1, 0, 1, 'a'}), list([]byte{0, 0, 0}), append(list(one), 0)} {
		if name, ok := serverName(bad); ok {
			t.Errorf("%v: %q", bad, name)
		}
	}
}

// FuzzParseClientHello: never panics, never asks for more after 64 KiB, and its answer does not change by what follows.
func FuzzParseClientHello(f *testing.F) {
	for _, c := range []*tls.Config{
		{ServerName: "www.example.com"},
		{ServerName: "a.example", NextProtos: []string{"h2"}},
		{},
		{ServerName: "a.example", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10},
	} {
		hello := captureHello(f, c)
		f.Add(hello)
		f.Add(split(hello, 7))
		f.Add(hello[:50])
	}
	f.Add([]byte{22, 3, 1, 0, 4, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := ParseClientHello(b)
		if errors.Is(err, io.ErrUnexpectedEOF) {
			if len(b) > 2*maxHello {
				t.Fatal("asks for more without end")
			}
			return
		}
		again, errAgain := ParseClientHello(append(bytes.Clone(b), 22, 3, 1, 0, 1, 0))
		if (err == nil) != (errAgain == nil) || got.ServerName != again.ServerName || !slices.Equal(got.ALPN, again.ALPN) {
			t.Fatalf("%+v, %v became %+v, %v by what follows", got, err, again, errAgain)
		}
	})
}
