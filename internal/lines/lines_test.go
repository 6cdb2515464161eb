package lines

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// FuzzReadLines checks that the lines are the same in whatever pieces the bytes of the file arrive.
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
		in := NewReader(r, len(text)+int(size))
		for {
			line, whole, err := in.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || !whole {
				t.Fatalf("line %d = %q, whole %t, %v", len(got)+1, line, whole, err)
			}
			got = append(got, string(line))
		}
		if strings.Join(got, "") != text || len(got) != strings.Count(text, "\n")+map[bool]int{true: 1}[text != "" && !strings.HasSuffix(text, "\n")] {
			t.Errorf("got %d lines of %q", len(got), text)
		}
	})
}

// TestLongLines checks that the beginning of a line that is too long is returned, and that the next
// line follows.
func TestLongLines(t *testing.T) {
	t.Parallel()
	in := NewReader(strings.NewReader(strings.Repeat("x", 19)+"\n"+strings.Repeat("y", 20)+"\n"+strings.Repeat("z", 100)+"\na\n"), 20)
	for _, want := range []struct {
		line  string
		whole bool
	}{{strings.Repeat("x", 19) + "\n", true}, {strings.Repeat("y", 20), false}, {strings.Repeat("z", 20), false}, {"a\n", true}} {
		if line, whole, err := in.Next(); string(line) != want.line || whole != want.whole || err != nil {
			t.Errorf("%q, %t, %v, want %q", line, whole, err, want.line)
		}
	}
}
