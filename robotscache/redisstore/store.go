package redisstore

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"golang.org/x/time/rate"

	"github.com/crawlgate/crawlgate/cluster/link"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/internal/storecodec"
)

// Config holds the settings of a [Store]. Only Link is required; other fields that are zero take
// their defaults.
type Config struct {
	// Link is to the server, with the prefix of all keys. It outlives the store.
	Link *link.Link
	// Versions is the number of versions kept for each origin; default robotscache.MaxVersions. Texts
	// do not depend on it.
	Versions int
	// Retention says how long texts are kept; its Max is not for this store. [Store.SetRetention]
	// changes it.
	Retention robotscache.Retention
	// Timeout bounds each call; default [link.Timeout].
	Timeout time.Duration
}

// format is the number of the layout of keys and values. Another release may have another; it then
// starts empty beside this one.
const format = "2:"

// Store is a [robotscache.Store] and a [robotscache.Leaser] in Redis.
type Store struct {
	cfg    Config
	times  atomic.Pointer[lifetimes]
	closed atomic.Bool
	link   *link.Link
	heard  atomic.Pointer[time.Time] // when the server answered a call last
	tries  *rate.Limiter             // of a server that counts as gone
	texts  *storecodec.TextCodec
}

// lifetimes are how long keys live from a save on, in ms.
type lifetimes struct{ records, texts string }

// New returns a store. It waits for the first answer of the server, for [link.Timeout] at most for
// each address. A server that is away may come later.
func New(cfg Config) *Store {
	cfg.Versions = cmp.Or(cfg.Versions, robotscache.MaxVersions)
	cfg.Timeout = cmp.Or(cfg.Timeout, link.Timeout)
	s := &Store{cfg: cfg, link: cfg.Link, tries: rate.NewLimiter(rate.Every(tryEvery), 1), texts: storecodec.NewTexts()}
	s.heard.Store(new(time.Time))
	s.SetRetention(cfg.Retention)
	_ = s.link.Beat(context.Background()) // the link knows why it has failed
	return s
}

// SetRetention changes how long later saves are kept.
func (s *Store) SetRetention(r robotscache.Retention) {
	r = r.Filled()
	s.times.Store(&lifetimes{milliseconds(r.Records()), milliseconds(r.Texts())})
}

func (s *Store) key(kind, name string) string {
	return "{" + s.link.Prefix + "}:robots:" + format + kind + name
}

func (s *Store) recordKey(k fetch.Key) string  { return s.key("r:", k.String()) }
func (s *Store) historyKey(k fetch.Key) string { return s.key("h:", k.String()) }
func (s *Store) leaseKey(k fetch.Key) string   { return s.key("l:", k.String()) }
func (s *Store) textKey(sha fetch.Sum) string  { return s.key("t:", hex.EncodeToString(sha[:])) }

// fault adds to an error the failed operation and the server's address.
func (s *Store) fault(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s in redis at %s: %w", doing, s.link.Address, err)
}

// Load implements [robotscache.Store], in two round trips where there is a text.
func (s *Store) Load(ctx context.Context, k fetch.Key) (r fetch.Record, err error) {
	value, err := s.get(ctx, s.recordKey(k))
	if err == nil {
		r, err = decodeRecord(value)
	}
	if err == nil {
		err = s.texts.SetText(&r, func(sha fetch.Sum) ([]byte, error) { return s.get(ctx, s.textKey(sha)) })
	}
	return r, s.fault("loading "+k.String(), err)
}

func (s *Store) get(ctx context.Context, key string) ([]byte, error) {
	result, err := s.do(ctx, func(ctx context.Context, c rueidis.Client) rueidis.RedisResult {
		return c.Do(ctx, c.B().Get().Key(key).Build())
	})
	if err != nil {
		return nil, err
	}
	return result.AsBytes()
}

// Save implements [robotscache.Store], in one go. Where the server has a record with a later
// attempt, that one stays.
func (s *Store) Save(ctx context.Context, records ...fetch.Record) error {
	if len(records) == 0 {
		return nil
	}
	calls := make([]rueidis.LuaExec, len(records))
	for i, r := range records {
		var err error
		if calls[i], err = s.saving(r); err != nil {
			return s.fault("saving the record of "+r.Key().String(), err)
		}
	}
	_, err := s.do(ctx, func(ctx context.Context, c rueidis.Client) rueidis.RedisResult {
		return firstFailure(saveScript.ExecMulti(ctx, c, calls...))
	})
	return s.fault("saving", err)
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
	textKey, encoded := s.recordKey(r.Key()), "" // the script wants some key of the slot
	if hasText {
		textKey, encoded = s.textKey(text.SHA256), string(s.texts.Encode(text.Body))
	}
	live := s.times.Load()
	return rueidis.LuaExec{
		Keys: []string{s.recordKey(r.Key()), s.historyKey(r.Key()), s.key("index", ""), s.key("seen", ""), textKey},
		Args: []string{
			string(record), string(version), r.Key().String(), encoded,
			live.records, strconv.Itoa(s.cfg.Versions), live.texts,
		},
	}, nil
}

// firstFailure returns the first result with an error, or the last one.
func firstFailure(results []rueidis.RedisResult) rueidis.RedisResult {
	for _, r := range results {
		if r.Error() != nil {
			return r
		}
	}
	return results[len(results)-1]
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(max(d.Milliseconds(), 1), 10) }

// Delete implements [robotscache.Store].
func (s *Store) Delete(ctx context.Context, k fetch.Key) error {
	name := k.String()
	_, err := s.do(ctx, func(ctx context.Context, c rueidis.Client) rueidis.RedisResult {
		return firstFailure(c.DoMulti(ctx,
			c.B().Del().Key(s.recordKey(k), s.historyKey(k)).Build(),
			c.B().Zrem().Key(s.key("index", "")).Member(name).Build(),
			c.B().Zrem().Key(s.key("seen", "")).Member(name).Build(),
		))
	})
	return s.fault("deleting "+name, err)
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
	from := "(" + after
	if after == "" {
		from = "-"
	}
	result, err := s.do(ctx, func(ctx context.Context, c rueidis.Client) rueidis.RedisResult {
		return c.Do(ctx, c.B().Zrangebylex().Key(s.key("index", "")).Min(from).Max("+").Limit(0, int64(limit)).Build())
	})
	if err != nil {
		return nil, nil, err
	}
	if names, err = result.AsStrSlice(); err != nil || len(names) == 0 {
		return nil, nil, err
	}
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = s.key("r:", name)
	}
	result, err = s.do(ctx, func(ctx context.Context, c rueidis.Client) rueidis.RedisResult {
		return c.Do(ctx, c.B().Mget().Key(keys...).Build())
	})
	if err != nil {
		return nil, nil, err
	}
	values, err := result.AsStrSlice() // "" for one that has expired
	for _, value := range values {
		if value == "" {
			continue
		}
		r, err := decodeRecord([]byte(value))
		if err != nil {
			return nil, nil, err
		}
		records = append(records, r)
	}
	return names, records, err
}

// History implements [robotscache.Store].
func (s *Store) History(ctx context.Context, k fetch.Key) (history []robotscache.Version, err error) {
	result, err := s.do(ctx, func(ctx context.Context, c rueidis.Client) rueidis.RedisResult {
		return c.Do(ctx, c.B().Lrange().Key(s.historyKey(k)).Start(0).Stop(-1).Build())
	})
	if err == nil {
		if err = rueidis.DecodeSliceOfJSON(result, &history); err != nil {
			err = fmt.Errorf("%w: %w", robotscache.ErrCorrupt, err)
		} else if len(history) == 0 {
			err = robotscache.ErrNotFound
		} else {
			err = s.setKeptUntil(ctx, history)
		}
	}
	return history, s.fault("history of "+k.String(), err)
}

// setKeptUntil asks how long the server will keep the texts of a history that is not empty.
func (s *Store) setKeptUntil(ctx context.Context, history []robotscache.Version) error {
	var answers []rueidis.RedisResult
	_, err := s.do(ctx, func(ctx context.Context, c rueidis.Client) rueidis.RedisResult {
		asked := make(rueidis.Commands, len(history))
		for i, v := range history {
			asked[i] = c.B().Pttl().Key(s.textKey(v.SHA256)).Build()
		}
		answers = c.DoMulti(ctx, asked...)
		return firstFailure(answers)
	})
	if err != nil {
		return err
	}
	now := time.Now().UTC()
	for i, answer := range answers {
		if left, err := answer.AsInt64(); err == nil && left >= 0 { // it is negative if there is no key
			history[i].KeptUntil = now.Add(time.Duration(left) * time.Millisecond)
		}
	}
	return nil
}

// Body implements [robotscache.Store].
func (s *Store) Body(ctx context.Context, sha [32]byte) (text []byte, err error) {
	data, err := s.get(ctx, s.textKey(sha))
	if err == nil {
		text, err = s.texts.Decode(data, sha)
	}
	return text, s.fault(fmt.Sprintf("reading text %x", sha), err)
}

// Close implements [robotscache.Store].
func (s *Store) Close() error {
	s.closed.Store(true)
	return nil
}

var (
	_ robotscache.Store  = (*Store)(nil)
	_ robotscache.Leaser = (*Store)(nil)
)
