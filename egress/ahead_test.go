package egress

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// TestReadAhead checks that the body keeps its bytes and its error, however they arrive.
func TestReadAhead(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		body io.Reader
		head string
		all  string
		err  error
	}{
		"empty":               {strings.NewReader(""), "", "", nil},
		"shorter":             {strings.NewReader("abc"), "abc", "abc", nil},
		"longer":              {strings.NewReader("abcdefgh"), "abcd", "abcdefgh", nil},
		"a byte at a time":    {iotest.OneByteReader(strings.NewReader("abcdefgh")), "abcd", "abcdefgh", nil},
		"end with the data":   {iotest.DataErrReader(strings.NewReader("abcd")), "abcd", "abcd", nil},
		"breaks off at once":  {iotest.ErrReader(broken), "", "", broken},
		"breaks off later on": {io.MultiReader(strings.NewReader("abcdef"), iotest.ErrReader(broken)), "abcd", "abcdef", broken},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			resp := &http.Response{Body: io.NopCloser(test.body)}
			head, whole := readAhead(t.Context(), resp, 4)
			if string(head) != test.head || whole && (test.err != nil || test.head != test.all) {
				t.Errorf("head %q, whole %v, want %q of %q", head, whole, test.head, test.all)
			}
			if ended := len(test.head) < 4 && test.err == nil; ended && !whole {
				t.Error("a body that ends before the bound is not reported as whole")
			}
			if all, err := io.ReadAll(resp.Body); string(all) != test.all || !errors.Is(err, test.err) {
				t.Errorf("body %q and %v, want %q and %v", all, err, test.all, test.err)
			}
		})
	}
}

// TestReadAheadGivesUp checks that a body that pauses delays its header by 100 ms, and loses no
// later bytes.
func TestReadAheadGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		body, w := io.Pipe()
		go func() {
			_, _ = io.WriteString(w, "ab")
			time.Sleep(time.Second)
			_, _ = io.WriteString(w, "cdef")
			_ = w.Close()
		}()
		resp := &http.Response{Body: body}
		began := time.Now()
		head, whole := readAhead(t.Context(), resp, 4)
		if took := time.Since(began); string(head) != "ab" || whole || took != AheadTime {
			t.Errorf("head %q after %s, want ab after AheadTime", head, took)
		}
		if all, err := io.ReadAll(resp.Body); string(all) != "abcdef" || err != nil {
			t.Errorf("body %q, error %v, want abcdef", all, err)
		}
	})
}

// TestReadAheadLeavesNoGoroutine checks that no goroutine outlives the end of the request and
// the close of the body.
func TestReadAheadLeavesNoGoroutine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		body, _ := io.Pipe()
		resp := &http.Response{Body: body}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if head, whole := readAhead(ctx, resp, 4); len(head) > 0 || whole {
			t.Errorf("head %q, whole %v, want neither", head, whole)
		}
		_ = resp.Body.Close() // otherwise the bubble does not end
		if n, err := resp.Body.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("read %d bytes after the close, error %v", n, err)
		}
	})
}

// looking is a set of steps that read the answer and its beginning, and keep a copy of its body.
type looking struct {
	unnoted
	res           *Result
	ahead         int
	refuse, began bool // Answered or Began refuses the answer
	head          string
	copied        bytes.Buffer
}

func (l *looking) Answered(int, http.Header) bool {
	l.res.Ahead, l.res.Copy = l.ahead, &l.copied
	return !l.refuse
}

func (l *looking) Began(head []byte, _ bool) bool {
	l.head = string(head)
	return !l.began
}

// TestForwardLooksAtAnswers checks that a caller can read the beginning of an answer before the
// client, can withhold the answer, and gets a copy of what the client got.
func TestForwardLooksAtAnswers(t *testing.T) {
	t.Parallel()
	for _, proto := range []string{"h1", "h2"} {
		for name, test := range map[string]struct {
			looking
			body, head, copied string
		}{
			"copy":            {looking{}, "0123456789", "", "0123456789"},
			"ahead":           {looking{ahead: 4}, "0123456789", "0123", "0123456789"},
			"ahead of it all": {looking{ahead: 400}, "0123456789", "0123456789", "0123456789"},
			"refused":         {looking{refuse: true}, "withheld", "", ""},
			"refused later":   {looking{ahead: 4, began: true}, "withheld", "0123", ""},
		} {
			t.Run(proto+" "+name, func(t *testing.T) {
				t.Parallel()
				origin := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					io.WriteString(w, "0123456789")
				}), proto)
				g := startGateway(t, proto, origin)
				look := &looking{ahead: test.ahead, refuse: test.refuse, began: test.began}
				g.steps = func(r *Result) { r.Hooks, look.res = look, r }
				resp, err := g.client(t).Get(g.URL)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				body, err := io.ReadAll(resp.Body)
				res := g.result(t)
				if err != nil || !strings.HasPrefix(string(body), test.body) || look.head != test.head || look.copied.String() != test.copied {
					t.Errorf("body %q, %v; head %q, copy %q", body, err, look.head, &look.copied)
				}
				if refused := test.refuse || test.began; refused != (res.Err != nil && res.Err.Kind == KindWithheld) || refused == res.Started {
					t.Errorf("the result is %+v, want withheld: %t", res, refused)
				}
			})
		}
	}
}
