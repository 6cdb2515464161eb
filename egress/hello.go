package egress

import (
	"errors"
	"io"

	"golang.org/x/crypto/cryptobyte"
)

// maxHello bounds a ClientHello. Post-quantum key shares bring it to some 2 KiB today.
const maxHello = 32 << 10

// Errors of [ParseClientHello].
var (
	errNotHello  = errors.New("not a TLS ClientHello")
	errLongHello = errors.New("TLS ClientHello is too long")
)

// Numbers of RFC 8446 (TLS), RFC 6066 (server_name) and RFC 7301 (ALPN).
const (
	messageClientHello = 1
	extensionSNI       = 0
	extensionALPN      = 16
	nameTypeHost       = 0
	maxRecord          = 1 << 14
	recordHeaderSize   = 5
	messageHeaderSize  = 4
)

// Hello is what a ClientHello tells in clear text.
type Hello struct {
	// ServerName is the name asked for (SNI), as sent; empty for none. With Encrypted Client Hello it is the name of the
	// outer hello, not of the site.
	ServerName string
	// ALPN are the protocols offered, in order.
	ALPN []string
}

// ParseClientHello reads a ClientHello from the beginning of a TLS connection, where it may be spread over several
// records. [io.ErrUnexpectedEOF] says that b is the beginning of one and more is needed; that is never
// the answer for more than 64 KiB.
func ParseClientHello(b []byte) (Hello, error) {
	message, err := helloMessage(b)
	if errors.Is(err, io.ErrUnexpectedEOF) && len(b) > 2*maxHello {
		err = errLongHello // a client that cuts its hello into crumbs
	}
	if err != nil {
		return Hello{}, err
	}
	return parseHello(message)
}

// helloMessage puts the records together that hold the handshake message.
func helloMessage(b []byte) ([]byte, error) {
	var message []byte
	want := messageHeaderSize
	for len(message) < want {
		if len(b) > 0 && b[0] != recordHandshake || len(b) > 1 && b[1] != 3 {
			return nil, errNotHello
		}
		if len(b) < recordHeaderSize {
			return nil, io.ErrUnexpectedEOF
		}
		size := int(b[3])<<8 | int(b[4])
		if size == 0 || size > maxRecord {
			return nil, errNotHello
		}
		part := b[recordHeaderSize:min(len(b), recordHeaderSize+size)]
		message = append(message, part...)
		if len(message) > 0 && message[0] != messageClientHello {
			return nil, errNotHello
		}
		if len(message) >= messageHeaderSize {
			want = messageHeaderSize + int(message[1])<<16 + int(message[2])<<8 + int(message[3])
		}
		if want > maxHello {
			return nil, errLongHello
		}
		if len(message) < want && len(part) < size {
			return nil, io.ErrUnexpectedEOF
		}
		b = b[recordHeaderSize+len(part):]
	}
	return message[:want], nil
}

func parseHello(message []byte) (Hello, error) {
	s := cryptobyte.String(message[messageHeaderSize:])
	var session, suites, compressions, extensions cryptobyte.String
	if !s.Skip(2+32) || // version and random
		!s.ReadUint8LengthPrefixed(&session) ||
		!s.ReadUint16LengthPrefixed(&suites) ||
		!s.ReadUint8LengthPrefixed(&compressions) {
		return Hello{}, errNotHello
	}
	if s.Empty() {
		return Hello{}, nil // before TLS 1.2 extensions could be missing
	}
	if !s.ReadUint16LengthPrefixed(&extensions) || !s.Empty() {
		return Hello{}, errNotHello
	}
	var hello Hello
	seen := make(map[uint16]bool)
	for !extensions.Empty() {
		var kind uint16
		var data cryptobyte.String
		if !extensions.ReadUint16(&kind) || !extensions.ReadUint16LengthPrefixed(&data) || seen[kind] {
			return Hello{}, errNotHello
		}
		seen[kind] = true
		ok := true
		switch kind {
		case extensionSNI:
			hello.ServerName, ok = serverName(data)
		case extensionALPN:
			hello.ALPN, ok = protocols(data)
		}
		if !ok {
			return Hello{}, errNotHello
		}
	}
	return hello, nil
}

// serverName gives the only host name of a server_name extension. More than one is not allowed, RFC 6066 section 3,
// and would leave open which of them counts.
func serverName(data cryptobyte.String) (string, bool) {
	var list cryptobyte.String
	if !data.ReadUint16LengthPrefixed(&list) || !data.Empty() || list.Empty() {
		return "", false
	}
	var kind uint8
	var name cryptobyte.String
	if !list.ReadUint8(&kind) || kind != nameTypeHost ||
		!list.ReadUint16LengthPrefixed(&name) || name.Empty() || !list.Empty() {
		return "", false
	}
	return string(name), true
}

func protocols(data cryptobyte.String) ([]string, bool) {
	var list cryptobyte.String
	if !data.ReadUint16LengthPrefixed(&list) || !data.Empty() || list.Empty() {
		return nil, false
	}
	var out []string
	for !list.Empty() {
		var p cryptobyte.String
		if !list.ReadUint8LengthPrefixed(&p) || p.Empty() {
			return nil, false
		}
		out = append(out, string(p))
	}
	return out, true
}
