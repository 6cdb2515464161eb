package memstore

import (
	"cmp"
	"container/list"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
)

const (
	versions = 10 // kept for each origin
	// itemSize and versionSize estimate the memory of an origin and a version without their texts:
	// map entries, list element, record, map of texts.
	itemSize    = 1600
	versionSize = 270
)

// Store is a [robotscache.Store] in memory. Its records last as long as the Store does. It keeps
// one copy of a text for each origin that has or had it.
type Store struct {
	maxSize int64

	mu     sync.Mutex
	closed bool
	size   int64
	byKey  map[fetch.Key]*item
	order  list.List // of *item, least recently used first
}

type item struct {
	record  fetch.Record
	history []robotscache.Version
	texts   map[fetch.Sum][]byte // of the record and the history
	size    int64
	place   *list.Element // in Store.order
}

var errClosed = errors.New("memory store is closed")

// New returns an empty store. maxSize bounds its memory in bytes, estimated; 0 means 256 MiB. The
// least recently used origins are dropped first, with the history of their outages. This can only
// make later answers stricter.
func New(maxSize int64) *Store {
	return &Store{maxSize: cmp.Or(maxSize, 256<<20), byKey: make(map[fetch.Key]*item)}
}

// enter locks the store if it may be used.
func (s *Store) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return errClosed
	}
	return nil
}

// Load implements [robotscache.Store].
func (s *Store) Load(ctx context.Context, k fetch.Key) (fetch.Record, error) {
	if err := s.enter(ctx); err != nil {
		return fetch.Record{}, err
	}
	defer s.mu.Unlock()
	it := s.byKey[k]
	if it == nil {
		return fetch.Record{}, robotscache.ErrNotFound
	}
	s.order.MoveToBack(it.place)
	return it.record, nil
}

// Save implements [robotscache.Store].
func (s *Store) Save(ctx context.Context, records ...fetch.Record) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, r := range records {
		if err := s.save(r); err != nil {
			return fmt.Errorf("saving the record of %s in memory: %w", r.Key(), err)
		}
	}
	return nil
}

func (s *Store) save(r fetch.Record) error {
	it := &item{record: r, texts: make(map[fetch.Sum][]byte)}
	var old item
	if had := s.byKey[r.Key()]; had != nil {
		old = *had
	}
	it.history = robotscache.AddVersion(old.history, robotscache.VersionOf(r), versions)
	text, ok := r.Text()
	if ok {
		if err := r.SetBody(text.Body); err != nil {
			return fmt.Errorf("%w: %w", robotscache.ErrInvalid, err)
		}
	}
	it.size = itemSize + versionSize*int64(len(it.history))
	for _, sha := range robotscache.Texts(r, it.history) {
		body := old.texts[sha]
		if ok && sha == text.SHA256 {
			body = text.Body
		}
		it.texts[sha] = body
		it.size += int64(len(body))
	}
	s.remove(r.Key())
	it.place = s.order.PushBack(it)
	s.byKey[r.Key()] = it
	s.size += it.size
	for s.size > s.maxSize && s.order.Len() > 0 {
		oldest, _ := s.order.Front().Value.(*item)
		s.remove(oldest.record.Key())
	}
	return nil
}

func (s *Store) remove(k fetch.Key) {
	if it := s.byKey[k]; it != nil {
		s.order.Remove(it.place)
		delete(s.byKey, k)
		s.size -= it.size
	}
}

// Delete implements [robotscache.Store].
func (s *Store) Delete(ctx context.Context, k fetch.Key) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.remove(k)
	return nil
}

// List implements [robotscache.Store]. It sorts all keys at each call: it is for humans, not for
// requests.
func (s *Store) List(ctx context.Context, after string, limit int) ([]fetch.Record, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	byName := make(map[string]*item)
	for k, it := range s.byKey {
		if name := k.String(); name > after {
			byName[name] = it
		}
	}
	if limit <= 0 || limit > robotscache.MaxList {
		limit = robotscache.MaxList
	}
	names := slices.Sorted(maps.Keys(byName))
	var records []fetch.Record
	for _, name := range names[:min(len(names), limit)] {
		records = append(records, robotscache.WithoutText(byName[name].record))
	}
	return records, nil
}

// History implements [robotscache.Store].
func (s *Store) History(ctx context.Context, k fetch.Key) ([]robotscache.Version, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	it := s.byKey[k]
	if it == nil {
		return nil, robotscache.ErrNotFound
	}
	return slices.Clone(it.history), nil
}

// Body implements [robotscache.Store]. Like List, it looks through all origins.
func (s *Store) Body(ctx context.Context, sha [32]byte) ([]byte, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	for _, it := range s.byKey {
		if text, ok := it.texts[sha]; ok {
			return text, nil
		}
	}
	return nil, fmt.Errorf("body %x: %w", sha, robotscache.ErrNotFound)
}

// Close implements [robotscache.Store].
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.byKey = nil
	s.order.Init()
	return nil
}

var _ robotscache.Store = (*Store)(nil)
