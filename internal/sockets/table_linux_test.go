package sockets

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000000000000000 100 0 0 10 0
   1: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4712 1 0000000000000000 100 0 0 10 0
   2: 0100007F:0BB8 0100007F:9C40 03 00000000:00000000 01:00000063 00000000     0        0 0 1 0000000000000000
   3: 0100007F:0BB9 00000000:0000
   4: 0100007F 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4714 1 0000000000000000 100 0 0 10 0
   5: 0100007F:0051 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4718 1 0000000000000000 100 0 0 10 0
   6: 0100007F:0BB8 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 4713 1 0000000000000000 20 4 30 10 -1
`

const table6 = `  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4715 1
   1: 0000000000000000FFFF00000200007F:1F91 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4716 1
   2: B80D0120000000000000000001000000:1F92 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4717 1
`

func TestParseTable(t *testing.T) {
	t.Parallel()
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the text comes from a little-endian machine")
	}
	want := addrPorts("127.0.0.1:3000", "0.0.0.0:80", "127.0.0.1:81", "[::]:8080", "127.0.0.2:8081", "[2001:db8::1]:8082")
	// The sockets after the listening ones are not read.
	got, err := parseTable(io.MultiReader(strings.NewReader(table), iotest.ErrReader(errors.New("read on"))))
	six, err6 := parseTable(strings.NewReader(table6))
	if got = append(got, six...); !slices.Equal(got, want) || err != nil || err6 != nil {
		t.Errorf("got %v, %v, %v, want %v", got, err, err6, want)
	}
}

func FuzzParseTable(f *testing.F) {
	f.Add([]byte(table))
	f.Add([]byte(table6))
	f.Fuzz(func(t *testing.T, text []byte) {
		addrs, _ := parseTable(bytes.NewReader(text))
		for _, a := range addrs {
			if !a.IsValid() || a.Addr().Is4In6() {
				t.Errorf("%v is not a canonical address", a)
			}
		}
	})
}
