package egress

import (
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func http2Request(path string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/2.0", 2, 0
	return r
}

// TestCrew: as many requests run at once as come, and of their goroutines no more than idleCrew stay.
func TestCrew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const requests = 3 * idleCrew
		var running atomic.Int64
		finish := make(chan struct{})
		c := newCrew(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			running.Add(1)
			defer running.Add(-1)
			<-finish
			w.WriteHeader(http.StatusTeapot)
		}))
		for range 2 {
			var all sync.WaitGroup
			for range requests {
				all.Go(func() {
					w := httptest.NewRecorder()
					if c.ServeHTTP(w, http2Request("/")); w.Code != http.StatusTeapot {
						t.Errorf("status %d", w.Code)
					}
				})
			}
			synctest.Wait()
			if n := running.Load(); n != requests {
				t.Errorf("%d of %d run", n, requests)
			}
			close(finish)
			all.Wait()
			synctest.Wait()
			if n := c.idle.Load(); n != idleCrew {
				t.Errorf("%d goroutines stay", n)
			}
			finish = make(chan struct{})
		}
		c.close()
		c.close()
		close(finish)
		c.ServeHTTP(httptest.NewRecorder(), http2Request("/")) // and its goroutine ends: synctest would tell
	})
}

// TestCrewPanics: a panic reaches the server's goroutine; the one that aborts a response as it is, others with where they were.
func TestCrewPanics(t *testing.T) {
	t.Parallel()
	c := newCrew(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/abort" {
			panic(http.ErrAbortHandler)
		}
		panicHere()
	}))
	defer c.close()
	for range 2 {
		if v := panicOf(c, "/abort"); v != http.ErrAbortHandler { //nolint:errorlint // net/http compares it so
			t.Errorf("panicked with %v", v)
		}
		text, _ := panicOf(c, "/").(string)
		if !strings.HasPrefix(text, "a defect\n") || !strings.Contains(text, "panicHere") {
			t.Errorf("panicked with %q", text)
		}
	}
}

// TestCrewExits: a handler that takes its goroutine away breaks its response off, and nothing else.
func TestCrewExits(t *testing.T) {
	t.Parallel()
	c := newCrew(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runtime.Goexit() }))
	defer c.close()
	for range 2 {
		if v := panicOf(c, "/"); v != http.ErrAbortHandler { //nolint:errorlint // net/http compares it so
			t.Errorf("panicked with %v", v)
		}
	}
	if n := c.idle.Load(); n != 0 {
		t.Errorf("%d goroutines stay", n)
	}
}

func panicHere() { panic("a defect") }

func panicOf(h http.Handler, path string) (v any) {
	defer func() { v = recover() }()
	h.ServeHTTP(httptest.NewRecorder(), http2Request(path))
	return nil
}
