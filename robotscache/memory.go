package robotscache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/crawlgate/crawlgate/fetch"
)

const (
	defaultMemory  = 256 << 20
	memoryVersions = 10 // kept for each origin
	// memoryItem and memoryVersion are what an origin and a version take besides their texts, roughly:
	// map entries, list element, record, map of texts.
	memoryItem    = 1600
	memoryVersion = 270
)

// Memory is a [Store] in memory. Its records last as long as the Memory does. A text is held once
// for each origin that has it or had it.
type Memory struct {
	closed atomic.Bool
	saving sync.Mutex
	items  *lru[fetch.Key, *remembered]
}

// remembered is what a Memory has of an origin. It does not change.
type remembered struct {
	record  fetch.Record
	history []Version
	texts   map[fetch.Sum][]byte // of the record and the history
}

// NewMemory returns an empty store. Its size is bounded in bytes, estimated; 0 stands for 256 MiB.
// The origins that were asked for least recently are dropped first, with the history of their
// outages: later answers can only be stricter for it.
func NewMemory(maxSize int64) *Memory {
	return &Memory{items: newLRU[fetch.Key, *remembered](cmp.Or(maxSize, defaultMemory))}
}

var errMemoryClosed = errors.New("memory store is closed")

// check returns why the store cannot be used.
func (s *Memory) check(ctx context.Context) error {
	if s.closed.Load() {
		return errMemoryClosed
	}
	return ctx.Err()
}

// find returns what there is of k.
func (s *Memory) find(ctx context.Context, k fetch.Key) (remembered, error) {
	if err := s.check(ctx); err != nil {
		return remembered{}, err
	}
	if it := s.items.get(k); it != nil {
		return *it, nil
	}
	return remembered{}, ErrNotFound
}

// Load implements [Store].
func (s *Memory) Load(ctx context.Context, k fetch.Key) (fetch.Record, error) {
	it, err := s.find(ctx, k)
	s.items.touch(k)
	return it.record, err
}

// Save implements [Store].
func (s *Memory) Save(ctx context.Context, records ...fetch.Record) error {
	s.saving.Lock()
	defer s.saving.Unlock()
	for _, r := range records {
		old, err := s.find(ctx, r.Key())
		if err == nil || errors.Is(err, ErrNotFound) {
			err = s.save(r, old)
		}
		if err != nil {
			return fmt.Errorf("saving the record of %s in memory: %w", r.Key(), err)
		}
	}
	return nil
}

func (s *Memory) save(r fetch.Record, old remembered) error {
	text, ok := r.Text()
	if ok {
		if err := r.SetBody(text.Body); err != nil {
			return fmt.Errorf("%w: %w", ErrInvalid, err)
		}
	}
	it := &remembered{record: r, history: AddVersion(old.history, VersionOf(r), memoryVersions), texts: make(map[fetch.Sum][]byte)}
	for _, v := range it.history {
		if v.State == fetch.StateRules {
			it.texts[v.SHA256] = old.texts[v.SHA256]
		}
	}
	if ok {
		it.texts[text.SHA256] = text.Body
	}
	size := memoryItem + memoryVersion*int64(len(it.history))
	for _, body := range it.texts {
		size += int64(len(body))
	}
	s.items.put(r.Key(), it, size)
	return nil
}

// Delete implements [Store].
func (s *Memory) Delete(ctx context.Context, k fetch.Key) error {
	err := s.check(ctx)
	if err == nil {
		s.items.drop(k)
	}
	return err
}

// List implements [Store]. It sorts all keys at each call: it is for humans, not for requests.
func (s *Memory) List(ctx context.Context, after string, limit int) ([]fetch.Record, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	byName := make(map[string]fetch.Record)
	for k, it := range s.items.all() {
		if name := k.String(); name > after {
			byName[name] = WithoutText(it.record)
		}
	}
	if limit <= 0 || limit > MaxList {
		limit = MaxList
	}
	var records []fetch.Record
	for _, name := range slices.Sorted(maps.Keys(byName))[:min(len(byName), limit)] {
		records = append(records, byName[name])
	}
	return records, nil
}

// History implements [Store].
func (s *Memory) History(ctx context.Context, k fetch.Key) ([]Version, error) {
	it, err := s.find(ctx, k)
	return slices.Clone(it.history), err
}

// Body implements [Store]. Like List it looks at all origins.
func (s *Memory) Body(ctx context.Context, sha [32]byte) ([]byte, error) {
	if err := s.check(ctx); err != nil {
		return nil, err
	}
	for _, it := range s.items.all() {
		if text, ok := it.texts[sha]; ok {
			return text, nil
		}
	}
	return nil, fmt.Errorf("body %x: %w", sha, ErrNotFound)
}

// Close implements [Store].
func (s *Memory) Close() error {
	s.closed.Store(true)
	s.items.close()
	return nil
}

var _ Store = (*Memory)(nil)
