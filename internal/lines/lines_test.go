package lines

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// FuzzReadLines: lines are those of the file, however the file comes.
func FuzzReadLines(f *testing.F) {
	f.Add("a\nb\n\nc", uint8(1), uint8(0))
	f.Add("\r\n\n", uint8(2), uint8(1))
	f.Add(strings.Repeat("x", 100)+"\ny\n", uint8(0), uint8(16))
	f.Fuzz(func(t *testing.T, text string, way, size uint8) {
		var r io.Reader = strings.NewReader(text)
		switch way % 3 {
		case 1:
			r = iotest.HalfReader(r)
		case 2:
			r = iotest.DataErrReader(r)
		}
		var got []string
		in := NewReader(r, 1<<20)
		in.r = bufio.NewReaderSize(r, int(size)) // 16 at the least
		for {
			line, whole, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || !whole {
				t.Fatalf("line %d: %q, %t, %v", len(got)+1, line, whole, err)
			}
			got = append(got, string(line))
		}
		if strings.Join(got, "") != text || len(got) != strings.Count(text, "\n")+map[bool]int{true: 1}[text != "" && !strings.HasSuffix(text, "\n")] {
			t.Errorf("%d lines of %q", len(got), text)
		}
	})
}
