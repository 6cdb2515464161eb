// Package follow keeps the value of a file that may change while the gateway runs.
package follow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"
	"weak"
)

const (
	// every is how often a file is looked at. A change is taken at the second look after it.
	every = time.Second
	// restless is how many looks a file may change before it is read nevertheless.
	restless = 10
)

// Elsewhere marks an error of parse whose cause may go away without a change of the file. The file
// is parsed again at each look.
func Elsewhere(err error) error { return elsewhere{err} }

type elsewhere struct{ error }

// Watched is the value of a file, as it was when it could be read last. It is safe for concurrent
// use.
type Watched[T any] struct {
	path  string
	limit int64
	parse func([]byte) (T, error)
	value atomic.Pointer[T]
	seen  os.FileInfo // the file that was read last
	next  os.FileInfo // the file that the last look found instead
	looks int         // that found a change since the last read
	again bool        // the last read failed for a reason elsewhere
}

// Open reads a file of at most limit bytes, and looks for changes until ctx ends. A file that
// cannot be read or parsed is an error. Later, the value before it stays, and tell gets the error;
// it gets nil when a change was taken. Calls of tell do not overlap.
//
// After the end of ctx, changes are taken as long as somebody holds the Watched, but not told: a
// request that waits outlives its configuration, and a key may be withdrawn before its turn.
func Open[T any](ctx context.Context, path string, limit int64, parse func([]byte) (T, error), tell func(error)) (*Watched[T], error) {
	f := &Watched[T]{path: path, limit: limit, parse: parse}
	if _, err := f.read(); err != nil {
		return nil, err
	}
	go func() {
		f.watch(ctx, tell)
		watchOn(weak.Make(f))
	}()
	return f, nil
}

// Value returns the last value that could be read.
func (f *Watched[T]) Value() T { return *f.value.Load() }

func (f *Watched[T]) watch(ctx context.Context, tell func(error)) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	told := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		news, err := f.read()
		switch {
		case err == nil:
			told = ""
		case err.Error() != told:
			told, news = err.Error(), true
		}
		if news {
			tell(err)
		}
	}
}

// watchOn takes changes until nobody holds the Watched.
func watchOn[T any](held weak.Pointer[Watched[T]]) {
	time.AfterFunc(every, func() {
		if f := held.Value(); f != nil {
			_, _ = f.read() // the configuration in force tells
			watchOn(held)
		}
	})
}

// read reads the file if it is not the one that was read before, with a fault or without. It waits
// until two looks find the same file, because another program may still write it: half a pattern
// can permit hosts that the whole one does not.
func (f *Watched[T]) read() (news bool, err error) {
	info, err := os.Stat(f.path) // of what a link leads to: Kubernetes replaces the link
	if err != nil {
		return false, err
	}
	if same(f.seen, info) {
		if f.looks = 0; !f.again {
			return false, nil
		}
	} else if f.looks++; f.seen != nil && !same(f.next, info) && f.looks < restless {
		f.next = info
		return false, nil
	}
	if !info.Mode().IsRegular() { // a pipe would block
		return false, fmt.Errorf("%s: is not a regular file", f.path)
	}
	file, err := os.Open(f.path)
	if err != nil {
		return false, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, f.limit+1))
	if err != nil {
		return false, fmt.Errorf("%s: %w", f.path, err)
	}
	f.seen, f.looks, f.again = info, 0, false
	if int64(len(data)) > f.limit {
		return false, fmt.Errorf("%s: is larger than %d bytes", f.path, f.limit)
	}
	v, err := f.parse(data)
	if _, f.again = errors.AsType[elsewhere](err); err != nil {
		return false, fmt.Errorf("%s: %w", f.path, err)
	}
	f.value.Store(&v)
	return true, nil
}

// same reports whether nothing has changed between two looks at a file. A program may set the time
// of the content back, but not the time of the change.
func same(before, now os.FileInfo) bool {
	return before != nil && os.SameFile(before, now) && before.Size() == now.Size() &&
		before.ModTime().Equal(now.ModTime()) && changedAt(before).Equal(changedAt(now))
}
