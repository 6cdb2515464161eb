package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"
)

// captureHello returns the first bytes that crypto/tls sends.
func captureHello(tb testing.TB, c *tls.Config) []byte {
	tb.Helper()
	client, server := net.Pipe()
	c.InsecureSkipVerify = true
	done := make(chan struct{})
	go func() {
		defer close(done)
		tls.Client(client, c).Handshake()
	}()
	var header [5]byte // of a record
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

// split divides the handshake message of one record into records of size bytes.
func split(record []byte, size int) []byte {
	var out []byte
	for part := range slices.Chunk(record[5:], size) {
		out = append(out, record[0], record[1], record[2], byte(len(part)>>8), byte(len(part)))
		out = append(out, part...)
	}
	return out
}

// serverNameOf returns the name in the hello of a tunnel whose client sends b and leaves.
func serverNameOf(ctx context.Context, b []byte) (string, error) {
	return newTunnel(&pieces{rest: b}).ServerName(ctx, time.Minute)
}

// wantsMore reports whether the error says that the hello was incomplete.
func wantsMore(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

func TestServerName(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		config *tls.Config
		want   string
	}{
		{"name", &tls.Config{ServerName: "www.example.com"}, "www.example.com"},
		{"case is kept", &tls.Config{ServerName: "WWW.Example.com"}, "WWW.Example.com"},
		{"address", &tls.Config{ServerName: "192.0.2.1"}, ""}, // Go sends no name for addresses
		{"none", &tls.Config{}, ""},
		{"protocols", &tls.Config{ServerName: "a.example", NextProtos: []string{"h2", "http/1.1"}}, "a.example"},
		{"TLS 1.2", &tls.Config{ServerName: "a.example", MaxVersion: tls.VersionTLS12}, "a.example"},
		{"TLS 1.0", &tls.Config{ServerName: "a.example", MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10}, "a.example"},
	}
	for _, tt := range tests {
		whole := captureHello(t, tt.config)
		for _, said := range [][]byte{whole, append(bytes.Clone(whole), "more"...), split(whole, 1), split(whole, 3), split(whole, 100)} {
			if got, err := serverNameOf(t.Context(), said); err != nil || got != tt.want {
				t.Errorf("%s in %d bytes: got %q, error %v, want %q", tt.name, len(said), got, err, tt.want)
			}
		}
		for n := range whole {
			if _, err := serverNameOf(t.Context(), whole[:n]); !wantsMore(err) {
				t.Errorf("%s cut at %d: error %v, want an incomplete hello", tt.name, n, err)
			}
		}
	}
}

func TestServerNameRefuses(t *testing.T) {
	t.Parallel()
	good := captureHello(t, &tls.Config{ServerName: "a.example"})
	change := func(at int, to byte) []byte { b := bytes.Clone(good); b[at] = to; return b }
	tests := map[string][]byte{
		"HTTP":              []byte("GET / HTTP/1.1\r\n\r\n"),
		"alert":             {21, 3, 1, 0, 2, 2, 70},
		"SSL 2.0":           {0x80, 0x2e, 1, 3, 1},
		"other version":     change(1, 0x10),
		"not a ClientHello": change(5, 2),
		"empty records":     bytes.Repeat([]byte{22, 3, 1, 0, 0}, 20),
		"long record":       {22, 3, 1, 0x48, 1, 1},
		"long message":      {22, 3, 1, 0, 4, 1, 1, 0, 1},
		"length too short": func() []byte {
			b := bytes.Clone(good)
			b[8]-- // the message ends before its extensions
			return b
		}(),
		"dot at the end": bytes.Replace(good, []byte("a.example"), []byte("a.exampl."), 1),
		"two names":      twoNames(good),
		"crumbs":         append([]byte{22, 3, 1, 0, 4, 1, 0, 0x7f, 0xfc}, bytes.Repeat([]byte{22, 3, 1, 0, 1, 1}, 12000)...),
	}
	for name, said := range tests {
		if got, err := serverNameOf(t.Context(), said); err == nil || wantsMore(err) {
			t.Errorf("%s: got %q, error %v, want an error", name, got, err)
		}
	}
}

// twoNames turns the name in a hello, "a.example", into two names of the same total length. Two
// names are forbidden (RFC 6066 section 3), because it is undefined which one counts.
func twoNames(hello []byte) []byte {
	one := append([]byte{0, 0, 9}, "a.example"...)
	two := append([]byte{0, 0, 3}, "a.e\x00\x00\x03mpl"...)
	return bytes.Replace(hello, one, two, 1)
}

// FuzzServerName checks that reading the name never panics, reads no more than the bound, and
// consumes nothing. The bytes that follow do not change the result.
func FuzzServerName(f *testing.F) {
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
		tunnel := newTunnel(&pieces{rest: b})
		got, err := tunnel.ServerName(t.Context(), time.Minute)
		if len(tunnel.ahead) > maxHello+copyBufferSize {
			t.Fatalf("%d bytes were read", len(tunnel.ahead))
		}
		if through, _ := io.ReadAll(tunnel); !bytes.Equal(through, b) {
			t.Fatal("reading ahead has changed the bytes")
		}
		if wantsMore(err) {
			return
		}
		again, errAgain := serverNameOf(t.Context(), append(bytes.Clone(b), 22, 3, 1, 0, 1, 0))
		if (err == nil) != (errAgain == nil) || got != again {
			t.Fatalf("got %q, error %v, but %q, error %v with the bytes that follow", got, err, again, errAgain)
		}
	})
}
