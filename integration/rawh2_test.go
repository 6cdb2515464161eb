package integration

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// rawH2 is an HTTP/2 connection on which a test sends fields that no client library would.
type rawH2 struct {
	framer *http2.Framer
	encode *hpack.Encoder
	block  bytes.Buffer
	stream uint32
}

// newRawH2 speaks HTTP/2 over a connection that has agreed on it.
func newRawH2(t *testing.T, conn net.Conn) *rawH2 {
	t.Helper()
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	h := &rawH2{framer: http2.NewFramer(conn, conn), stream: 1}
	h.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	h.encode = hpack.NewEncoder(&h.block)
	if err := h.framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return h
}

// rawH2 opens an HTTP/2 connection to the port.
func (p *tlsPort) rawH2(t *testing.T) *rawH2 {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(p.authority.cert)
	d := tls.Dialer{Config: &tls.Config{RootCAs: roots, NextProtos: []string{"h2"}}}
	conn, err := d.DialContext(t.Context(), "tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return newRawH2(t, conn)
}

// ask sends a request without a body, as names and values in turn, and reads its answer.
func (h *rawH2) ask(fields ...string) (answer, error) { return h.send(true, fields) }

// open sends the head of a request that goes on, and reads its answer or, if that goes on as well, the head of it.
func (h *rawH2) open(fields ...string) (answer, error) { return h.send(false, fields) }

func (h *rawH2) send(whole bool, fields []string) (answer, error) {
	h.block.Reset()
	for i := 0; i+1 < len(fields); i += 2 {
		if err := h.encode.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			return answer{}, err
		}
	}
	id := h.stream
	h.stream += 2
	err := h.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, BlockFragment: h.block.Bytes(), EndStream: whole, EndHeaders: true,
	})
	if err != nil {
		return answer{}, err
	}
	return h.answerOf(id, whole)
}

func (h *rawH2) answerOf(id uint32, whole bool) (answer, error) {
	a := answer{header: make(http.Header)}
	for {
		frame, err := h.framer.ReadFrame()
		if err != nil {
			return a, err
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = h.framer.WriteSettingsAck()
			}
		case *http2.MetaHeadersFrame:
			for _, field := range f.Fields {
				if field.Name == ":status" {
					a.status, err = strconv.Atoi(field.Value)
				} else {
					a.header.Add(field.Name, field.Value)
				}
			}
		case *http2.DataFrame:
			a.body += string(f.Data())
		case *http2.RSTStreamFrame:
			err = errors.New("the stream was reset: " + f.ErrCode.String())
		case *http2.GoAwayFrame:
			err = errors.New("the connection ends: " + f.ErrCode.String())
		}
		if err != nil {
			return a, err
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			if f.StreamEnded() || !whole && a.status == http.StatusOK {
				return a, nil
			}
		case *http2.DataFrame:
			if f.StreamEnded() {
				return a, nil
			}
		}
	}
}
