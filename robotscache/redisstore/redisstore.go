package redisstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/internal/storecodec"
)

// Config holds the settings of a [Store]. Only URL is required; other fields that
// are zero or negative take their defaults.
type Config struct {
	// URL names the server: redis://user:password@host:port/db, rediss:// for TLS,
	// unix:// for a socket; with ?addr=host:port for more nodes and
	// ?master_set=name for sentinels.
	URL string
	// Prefix is what all keys begin with; default "{crawlgate}:robots:". Without a
	// hash tag (the braces) the store does not work in a cluster.
	Prefix string
	// Versions is the number of versions kept for each origin; default 10.
	Versions int
	// Retention is how long what is not saved again is kept; default 60 days,
	// twice the longest time for which the past of an unreachable origin matters.
	Retention time.Duration
	// Timeout bounds each call, and the dialing for it; default 500 ms.
	Timeout time.Duration
}

const (
	defaultPrefix    = "{crawlgate}:robots:"
	defaultVersions  = 10
	defaultRetention = 60 * 24 * time.Hour
	defaultTimeout   = 500 * time.Millisecond

	// format is the number of the layout of keys and values. Another release may
	// have another; it then starts empty beside this one.
	format = "2:"
)

// Store is a [robotscache.Store] and a [robotscache.Leaser] in Redis.
type Store struct {
	cfg   Config
	link  *link
	texts *storecodec.Texts
}

// New returns a store. It does not wait for the server: the error is about the
// configuration.
func New(cfg Config) (*Store, error) {
	if cfg.Prefix == "" {
		cfg.Prefix = defaultPrefix
	}
	if cfg.Versions <= 0 {
		cfg.Versions = defaultVersions
	}
	if cfg.Retention <= 0 {
		cfg.Retention = defaultRetention
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultTimeout
	}
	l, err := newLink(cfg.URL, cfg.Timeout)
	if err != nil {
		return nil, fmt.Errorf("redis store: %w", err)
	}
	texts, err := storecodec.NewTexts()
	if err != nil {
		return nil, err
	}
	return &Store{cfg: cfg, link: l, texts: texts}, nil
}

func (s *Store) key(kind, name string) string { return s.cfg.Prefix + format + kind + name }

func (s *Store) recordKey(o origin.Origin) string  { return s.key("r:", o.String()) }
func (s *Store) historyKey(o origin.Origin) string { return s.key("h:", o.String()) }
func (s *Store) leaseKey(o origin.Origin) string   { return s.key("l:", o.String()) }
func (s *Store) textKey(sha fetch.Sum) string      { return s.key("t:", hex.EncodeToString(sha[:])) }

// fault wraps an error of a call with what it was and the server's address.
func (s *Store) fault(doing string, err error) error {
	return fmt.Errorf("%s in redis at %s: %w", doing, s.link.address, err)
}

// Load implements [robotscache.Store], in two round trips where there is a text.
func (s *Store) Load(ctx context.Context, o origin.Origin) (fetch.Record, error) {
	value, err := s.get(ctx, s.recordKey(o))
	if err != nil {
		return fetch.Record{}, s.fault("loading "+o.String(), err)
	}
	r, err := decodeRecord(value)
	if err == nil {
		err = s.texts.SetText(&r, func(sha fetch.Sum) ([]byte, error) { return s.get(ctx, s.textKey(sha)) })
	}
	if err != nil {
		return fetch.Record{}, s.fault("loading "+o.String(), err)
	}
	return r, nil
}

func (s *Store) get(ctx context.Context, key string) ([]byte, error) {
	var value []byte
	err := s.link.do(ctx, func(ctx context.Context, c rueidis.Client) error {
		var err error
		value, err = c.Do(ctx, c.B().Get().Key(key).Build()).AsBytes()
		return err
	})
	return value, err
}

// Save implements [robotscache.Store], in one round trip. Where the server has a
// record with a later attempt, that one stays.
func (s *Store) Save(ctx context.Context, records ...fetch.Record) error {
	calls := make([]rueidis.LuaExec, len(records))
	for i, r := range records {
		var err error
		if calls[i], err = s.saving(r); err != nil {
			return s.fault("saving", fmt.Errorf("the record of %s: %w", r.Origin, err))
		}
	}
	err := s.link.do(ctx, func(ctx context.Context, c rueidis.Client) error {
		return firstError(saveScript.ExecMulti(ctx, c, calls...))
	})
	if err != nil {
		return s.fault("saving", err)
	}
	return nil
}

// saving makes the call of saveScript for a record.
func (s *Store) saving(r fetch.Record) (rueidis.LuaExec, error) {
	text, hasText, err := storecodec.TextOf(r)
	if err != nil {
		return rueidis.LuaExec{}, err
	}
	record, err := encodeRecord(r)
	if err != nil {
		return rueidis.LuaExec{}, err
	}
	version, err := json.Marshal(robotscache.VersionOf(r))
	if err != nil {
		return rueidis.LuaExec{}, err
	}
	textKey, encoded := s.recordKey(r.Origin), "" // the script wants some key of the slot
	if hasText {
		textKey, encoded = s.textKey(text.SHA256), string(s.texts.Encode(text.Body))
	}
	return rueidis.LuaExec{
		Keys: []string{s.recordKey(r.Origin), s.historyKey(r.Origin), s.key("index", ""), s.key("seen", ""), textKey},
		Args: []string{
			string(record), string(version), r.Origin.String(), encoded,
			milliseconds(s.cfg.Retention), strconv.Itoa(s.cfg.Versions),
		},
	}, nil
}

// firstError returns the first error of several calls.
func firstError(results []rueidis.RedisResult) error {
	for _, r := range results {
		if err := r.Error(); err != nil {
			return err
		}
	}
	return nil
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(max(d.Milliseconds(), 1), 10) }

// Delete implements [robotscache.Store]. Texts stay until their time is over.
func (s *Store) Delete(ctx context.Context, o origin.Origin) error {
	name := o.String()
	err := s.link.do(ctx, func(ctx context.Context, c rueidis.Client) error {
		return firstError(c.DoMulti(ctx,
			c.B().Del().Key(s.recordKey(o), s.historyKey(o)).Build(),
			c.B().Zrem().Key(s.key("index", "")).Member(name).Build(),
			c.B().Zrem().Key(s.key("seen", "")).Member(name).Build(),
		))
	})
	if err != nil {
		return s.fault("deleting "+name, err)
	}
	return nil
}

// List implements [robotscache.Store].
func (s *Store) List(ctx context.Context, after string, limit int) ([]fetch.Record, error) {
	if limit <= 0 || limit > robotscache.MaxList {
		limit = robotscache.MaxList
	}
	records := make([]fetch.Record, 0, limit)
	for len(records) < limit {
		names, page, err := s.page(ctx, after, limit-len(records))
		if err != nil {
			return nil, s.fault("listing", err)
		}
		if len(names) == 0 {
			break
		}
		records = append(records, page...)
		after = names[len(names)-1]
	}
	return records, nil
}

// page returns the next names of the index, and the records that they still have.
func (s *Store) page(ctx context.Context, after string, limit int) (names []string, records []fetch.Record, err error) {
	var values []rueidis.RedisMessage
	err = s.link.do(ctx, func(ctx context.Context, c rueidis.Client) error {
		var err error
		from := "(" + after
		if after == "" {
			from = "-"
		}
		names, err = c.Do(ctx, c.B().Zrangebylex().Key(s.key("index", "")).Min(from).Max("+").Limit(0, int64(limit)).Build()).AsStrSlice()
		if err != nil || len(names) == 0 {
			return err
		}
		keys := make([]string, len(names))
		for i, name := range names {
			keys[i] = s.key("r:", name)
		}
		values, err = c.Do(ctx, c.B().Mget().Key(keys...).Build()).ToArray()
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	for _, v := range values {
		b, err := v.AsBytes()
		if rueidis.IsRedisNil(err) {
			continue // expired
		}
		if err != nil {
			return nil, nil, err
		}
		r, err := decodeRecord(b)
		if err != nil {
			return nil, nil, err
		}
		records = append(records, r)
	}
	return names, records, nil
}

// History implements [robotscache.Store].
func (s *Store) History(ctx context.Context, o origin.Origin) ([]robotscache.Version, error) {
	var encoded []string
	err := s.link.do(ctx, func(ctx context.Context, c rueidis.Client) error {
		var err error
		encoded, err = c.Do(ctx, c.B().Lrange().Key(s.historyKey(o)).Start(0).Stop(-1).Build()).AsStrSlice()
		return err
	})
	if err == nil && len(encoded) == 0 {
		err = robotscache.ErrNotFound
	}
	if err != nil {
		return nil, s.fault("history of "+o.String(), err)
	}
	history := make([]robotscache.Version, len(encoded))
	for i, b := range encoded {
		if err := json.Unmarshal([]byte(b), &history[i]); err != nil {
			return nil, s.fault("history of "+o.String(), fmt.Errorf("%w: %w", robotscache.ErrCorrupt, err))
		}
	}
	return history, nil
}

// Body implements [robotscache.Store]. The text of a version that was last in
// force longer than the retention ago is gone.
func (s *Store) Body(ctx context.Context, sha [32]byte) ([]byte, error) {
	var text []byte
	data, err := s.get(ctx, s.textKey(sha))
	if err == nil {
		text, err = s.texts.Decode(data)
	}
	if err == nil && sha256.Sum256(text) != sha {
		err = robotscache.ErrCorrupt
	}
	if err != nil {
		return nil, s.fault(fmt.Sprintf("reading text %x", sha), err)
	}
	return text, nil
}

// Close implements [robotscache.Store].
func (s *Store) Close() error {
	if !s.link.close() {
		return nil
	}
	return s.texts.Close()
}

var (
	_ robotscache.Store  = (*Store)(nil)
	_ robotscache.Leaser = (*Store)(nil)
)
