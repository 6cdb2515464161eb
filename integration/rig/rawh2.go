package rig

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"strconv"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// RawH2 is an HTTP/2 connection on which a test sends fields that no client library sends.
type RawH2 struct {
	Framer *http2.Framer
	encode *hpack.Encoder
	block  bytes.Buffer
	stream uint32
}

// NewRawH2 starts HTTP/2 on a connection that has negotiated it.
func NewRawH2(t *testing.T, conn net.Conn) *RawH2 {
	t.Helper()
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	h := &RawH2{Framer: http2.NewFramer(conn, conn), stream: 1}
	h.Framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	h.encode = hpack.NewEncoder(&h.block)
	if err := h.Framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return h
}

// Ask sends a request without a body and reads its answer. fields are names and values in turn.
func (h *RawH2) Ask(fields ...string) (Answer, error) { return h.send(true, fields) }

// Open sends the head of a request with a body to follow. It reads the answer, or only its head if
// the answer has no end yet.
func (h *RawH2) Open(fields ...string) (Answer, error) { return h.send(false, fields) }

func (h *RawH2) send(whole bool, fields []string) (Answer, error) {
	h.block.Reset()
	for i := 0; i+1 < len(fields); i += 2 {
		if err := h.encode.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			return Answer{}, err
		}
	}
	id := h.stream
	h.stream += 2
	err := h.Framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: id, BlockFragment: h.block.Bytes(), EndStream: whole, EndHeaders: true,
	})
	if err != nil {
		return Answer{}, err
	}
	return h.answerOf(id, whole)
}

func (h *RawH2) answerOf(id uint32, whole bool) (Answer, error) {
	a := Answer{Header: make(http.Header)}
	for {
		frame, err := h.Framer.ReadFrame()
		if err != nil {
			return a, err
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = h.Framer.WriteSettingsAck()
			}
		case *http2.MetaHeadersFrame:
			for _, field := range f.Fields {
				if field.Name == ":status" {
					a.Status, err = strconv.Atoi(field.Value)
				} else {
					a.Header.Add(field.Name, field.Value)
				}
			}
		case *http2.DataFrame:
			a.Body += string(f.Data())
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
			if f.StreamEnded() || !whole && a.Status == http.StatusOK {
				return a, nil
			}
		case *http2.DataFrame:
			if f.StreamEnded() {
				return a, nil
			}
		}
	}
}
