// Package memstore keeps robots.txt records in memory, for gateways that keep nothing
// on disk ("store none") and for tests.
package memstore

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// Config holds the limits of a [Store]. Fields that are zero or negative take
// their defaults.
type Config struct {
	// MaxSize bounds the memory in bytes, estimated; default 256 MiB. The origins
	// that were asked for least recently are dropped first, with the history of their
	// outages: later answers can only be stricter for it.
	MaxSize int64
	// Versions is the number of versions kept for each origin; default 10.
	Versions int
}

const (
	defaultMaxSize  = 256 << 20
	defaultVersions = 10
	// itemSize and bodySize are what an origin and a body take besides their
	// texts, roughly: map entries, list elements, record, one version.
	itemSize    = 1200
	bodySize    = 150
	versionSize = 120
)

// Store is a [robotscache.Store] in memory. What it holds lasts as long as the
// Store does. Bodies are held once for all origins.
type Store struct {
	cfg Config

	mu       sync.Mutex
	closed   bool
	size     int64
	byOrigin map[origin.Origin]*list.Element // of *item
	order    list.List                       // least recently used first
	bodies   map[fetch.Sum]*body
}

type item struct {
	record  fetch.Record // its body is that of bodies
	history []robotscache.Version
	texts   []fetch.Sum
}

type body struct {
	text []byte
	refs int
}

var errClosed = errors.New("memory store is closed")

// New returns an empty store.
func New(cfg Config) *Store {
	if cfg.MaxSize <= 0 {
		cfg.MaxSize = defaultMaxSize
	}
	if cfg.Versions <= 0 {
		cfg.Versions = defaultVersions
	}
	return &Store{
		cfg:      cfg,
		byOrigin: make(map[origin.Origin]*list.Element),
		bodies:   make(map[fetch.Sum]*body),
	}
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
func (s *Store) Load(ctx context.Context, o origin.Origin) (fetch.Record, error) {
	if err := s.enter(ctx); err != nil {
		return fetch.Record{}, err
	}
	defer s.mu.Unlock()
	el := s.byOrigin[o]
	if el == nil {
		return fetch.Record{}, robotscache.ErrNotFound
	}
	s.order.MoveToBack(el)
	return itemOf(el).record, nil
}

// Save implements [robotscache.Store].
func (s *Store) Save(ctx context.Context, records ...fetch.Record) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, r := range records {
		if err := s.save(r); err != nil {
			return fmt.Errorf("saving the record of %s in memory: %w", r.Origin, err)
		}
	}
	return nil
}

func (s *Store) save(r fetch.Record) error {
	var old item
	el := s.byOrigin[r.Origin]
	if el != nil {
		old = *itemOf(el)
	}
	it := &item{record: r}
	it.history = robotscache.AddVersion(old.history, robotscache.VersionOf(r), s.cfg.Versions)
	it.texts = robotscache.Texts(r, it.history)
	if err := s.addReferences(it); err != nil {
		s.dropReferences(it)
		return fmt.Errorf("%w: %w", robotscache.ErrInvalid, err)
	}
	s.dropReferences(&old)
	if el == nil {
		s.byOrigin[r.Origin] = s.order.PushBack(it)
		s.size += itemSize
	} else {
		el.Value = it
		s.order.MoveToBack(el)
	}
	s.size += versionSize * int64(len(it.history)-len(old.history))
	for s.size > s.cfg.MaxSize && s.order.Len() > 0 {
		s.remove(s.order.Front())
	}
	return nil
}

// addReferences counts one more reference to each text of an item, of which only the
// record's own may be new, and makes the record use the shared copy.
func (s *Store) addReferences(it *item) error {
	text, ok := it.record.Text()
	for _, sha := range it.texts {
		b := s.bodies[sha]
		if b == nil {
			b = &body{text: slices.Clip(text.Body)}
			s.bodies[sha] = b
			s.size += bodySize + int64(len(b.text))
		}
		b.refs++
	}
	if !ok {
		return nil
	}
	return it.record.SetBody(s.bodies[text.SHA256].text)
}

// dropReferences undoes addReferences.
func (s *Store) dropReferences(it *item) {
	for _, sha := range it.texts {
		b := s.bodies[sha]
		if b.refs--; b.refs == 0 {
			delete(s.bodies, sha)
			s.size -= bodySize + int64(len(b.text))
		}
	}
}

func (s *Store) remove(el *list.Element) {
	it := itemOf(el)
	s.dropReferences(it)
	s.order.Remove(el)
	delete(s.byOrigin, it.record.Origin)
	s.size -= itemSize + versionSize*int64(len(it.history))
}

// Delete implements [robotscache.Store].
func (s *Store) Delete(ctx context.Context, o origin.Origin) error {
	if err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if el := s.byOrigin[o]; el != nil {
		s.remove(el)
	}
	return nil
}

// List implements [robotscache.Store]. It sorts all keys at each call: it is for
// people, not for requests.
func (s *Store) List(ctx context.Context, after string, limit int) ([]fetch.Record, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	type key struct {
		text string
		el   *list.Element
	}
	var keys []key
	for o, el := range s.byOrigin {
		if text := o.String(); text > after {
			keys = append(keys, key{text, el})
		}
	}
	slices.SortFunc(keys, func(a, b key) int { return strings.Compare(a.text, b.text) })
	if limit <= 0 || limit > robotscache.MaxList {
		limit = robotscache.MaxList
	}
	keys = keys[:min(len(keys), limit)]
	records := make([]fetch.Record, 0, len(keys))
	for _, k := range keys {
		records = append(records, robotscache.WithoutText(itemOf(k.el).record))
	}
	return records, nil
}

// History implements [robotscache.Store].
func (s *Store) History(ctx context.Context, o origin.Origin) ([]robotscache.Version, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	el := s.byOrigin[o]
	if el == nil {
		return nil, robotscache.ErrNotFound
	}
	return slices.Clone(itemOf(el).history), nil
}

// Body implements [robotscache.Store].
func (s *Store) Body(ctx context.Context, sha [32]byte) ([]byte, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	b := s.bodies[sha]
	if b == nil {
		return nil, fmt.Errorf("body %x: %w", sha, robotscache.ErrNotFound)
	}
	return b.text, nil
}

// Close implements [robotscache.Store].
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.byOrigin, s.bodies = nil, nil
	s.order.Init()
	return nil
}

func itemOf(el *list.Element) *item {
	it, _ := el.Value.(*item)
	return it
}

var _ robotscache.Store = (*Store)(nil)
