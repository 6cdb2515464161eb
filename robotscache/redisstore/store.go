package redisstore

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
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

// Config configures a [Store]. Only Link is required. Other fields that are zero take their
// defaults.
type Config struct {
	// Link is to the server, with the prefix of all keys. It outlives the store.
	Link *link.Link
	// Versions is the number of versions kept for each origin; default robotscache.MaxVersions. Texts
	// do not depend on it.
	Versions int
	// Retention says how long texts are kept. This store ignores its Max. [Store.SetRetention] changes
	// it.
	Retention robotscache.Retention
	// Timeout bounds each call; default [link.Timeout].
	Timeout time.Duration
}

// buckets is the number of parts that the records and their index have. It is a part of the format.
const buckets = 256

// Store is a [robotscache.Store] and a [robotscache.Leaser] in Redis.
type Store struct {
	cfg    Config
	times  atomic.Pointer[lifetimes]
	closed atomic.Bool
	link   *link.Link
	heard  atomic.Pointer[time.Time] // when the server answered a call last
	tries  *rate.Limiter             // of a server that counts as gone
	texts  *storecodec.TextCodec
	former atomic.Pointer[bool] // [Store.hasFormer]; nil while that is not known
}

// lifetimes are how long keys live from a save on.
type lifetimes struct{ records, texts time.Duration }

// New returns a store. It waits for the first answer of the server, for at most [link.Timeout] per
// address. An unreachable server may come back later.
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
	s.times.Store(&lifetimes{r.Records(), r.Texts()})
}

// bucketKey names a key of a bucket. The tags are octal because their slots are spread more evenly
// than those of decimal numbers: of 256 buckets, each of 12 nodes has at most 22, and not 28.
func (s *Store) bucketKey(bucket int, name string) string {
	return fmt.Sprintf("%s:robots:3:{%03o}:%s", s.link.Prefix, bucket, name)
}

func bucketOf(name string) int { return int(crc32.ChecksumIEEE([]byte(name)) % buckets) }

// key names the key of one kind for an origin.
func (s *Store) key(kind, name string) string { return s.bucketKey(bucketOf(name), kind+name) }

func (s *Store) textKey(sha fetch.Sum) string {
	return s.link.Prefix + ":robots:3:t:" + hex.EncodeToString(sha[:])
}

// fault adds to an error the failed operation and the server's address.
func (s *Store) fault(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s in redis at %s: %w", doing, s.link.Address, err)
}

// Load implements [robotscache.Store], in two round trips if there is a text.
func (s *Store) Load(ctx context.Context, k fetch.Key) (r fetch.Record, err error) {
	value, err := s.get(ctx, s.key("r:", k.String()), s.formerKey("r:", k.String()))
	if err == nil {
		r, err = decodeRecord(value)
	}
	if err == nil {
		err = s.texts.SetText(&r, func(sha fetch.Sum) ([]byte, error) { return s.text(ctx, sha) })
	}
	return r, s.fault("loading "+k.String(), err)
}

// text returns a text as it is stored.
func (s *Store) text(ctx context.Context, sha fetch.Sum) ([]byte, error) {
	return s.get(ctx, s.textKey(sha), s.formerTextKey(sha))
}

// get returns the value of a key or, if the key has none, its value in the former format.
func (s *Store) get(ctx context.Context, key, former string) ([]byte, error) {
	data, err := s.getOne(ctx, key)
	if errors.Is(err, robotscache.ErrNotFound) {
		return s.getFormer(ctx, former)
	}
	return data, err
}

func (s *Store) getOne(ctx context.Context, key string) ([]byte, error) {
	result, err := s.do(ctx, func(ctx context.Context, c rueidis.Client) rueidis.RedisResult {
		return c.Do(ctx, c.B().Get().Key(key).Build())
	})
	if err != nil {
		return nil, err
	}
	return result.AsBytes()
}

// Save implements [robotscache.Store], in two round trips if there are texts, because a text must
// be there before its record. If the server has a record with a later attempt, that record stays.
func (s *Store) Save(ctx context.Context, records ...fetch.Record) error {
	if len(records) == 0 {
		return nil
	}
	calls := make([]rueidis.LuaExec, len(records))
	texts := make(map[string]string) // by key
	for i, r := range records {
		var err error
		if calls[i], err = s.saving(r, texts); err != nil {
			return s.fault("saving the record of "+r.Key().String(), err)
		}
	}
	live := s.times.Load().texts
	sets := func(b rueidis.Builder) (sets rueidis.Commands) {
		for key, text := range texts {
			sets = append(sets, b.Set().Key(key).Value(text).Px(live).Build())
		}
		return sets
	}
	var err error
	if len(texts) > 0 { // an empty call would count as an answer
		_, err = s.all(ctx, sets)
	}
	if err == nil {
		_, err = s.do(ctx, func(ctx context.Context, c rueidis.Client) rueidis.RedisResult {
			return firstFailure(saveScript.ExecMulti(ctx, c, calls...))
		})
	}
	return s.fault("saving", err)
}

// saving makes the call of saveScript for a record, and adds its text to those given.
func (s *Store) saving(r fetch.Record, texts map[string]string) (rueidis.LuaExec, error) {
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
	if hasText {
		texts[s.textKey(text.SHA256)] = string(s.texts.Encode(text.Body))
	}
	name := r.Key().String()
	bucket := bucketOf(name)
	return rueidis.LuaExec{
		Keys: []string{s.key("r:", name), s.key("h:", name), s.bucketKey(bucket, "index"), s.bucketKey(bucket, "seen")},
		Args: []string{string(record), string(version), name, milliseconds(s.times.Load().records), strconv.Itoa(s.cfg.Versions)},
	}, nil
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(max(d.Milliseconds(), 1), 10) }

// Delete implements [robotscache.Store].
func (s *Store) Delete(ctx context.Context, k fetch.Key) error {
	name := k.String()
	bucket := bucketOf(name)
	former := s.hasFormer(ctx)
	_, err := s.all(ctx, func(b rueidis.Builder) rueidis.Commands {
		asked := rueidis.Commands{
			b.Del().Key(s.key("r:", name), s.key("h:", name)).Build(),
			b.Zrem().Key(s.bucketKey(bucket, "index")).Member(name).Build(),
			b.Zrem().Key(s.bucketKey(bucket, "seen")).Member(name).Build(),
		}
		if former { // otherwise the record would come back
			asked = append(asked, b.Del().Key(s.formerKey("r:", name), s.formerKey("h:", name)).Build())
		}
		return asked
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
	if names, err = s.names(ctx, after, limit); err != nil || len(names) == 0 {
		return nil, nil, err
	}
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = s.key("r:", name)
	}
	var values map[string]rueidis.RedisMessage
	_, err = s.do(ctx, func(ctx context.Context, c rueidis.Client) rueidis.RedisResult {
		values, err = rueidis.MGet(c, ctx, keys)
		return rueidis.NewErrorResult(err)
	})
	if err != nil {
		return nil, nil, err
	}
	for i, key := range keys {
		var data []byte
		if value := values[key]; !value.IsNil() {
			data, err = value.AsBytes()
		} else { // it has expired, or is of the former format
			data, err = s.getFormer(ctx, s.formerKey("r:", names[i]))
		}
		if errors.Is(err, robotscache.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		r, err := decodeRecord(data)
		if err != nil {
			return nil, nil, err
		}
		records = append(records, r)
	}
	return names, records, nil
}

// names merges the next names of all buckets. Names are spread over the buckets almost at random,
// so if each bucket is asked for slightly more than its share, a name is rarely missing.
func (s *Store) names(ctx context.Context, after string, limit int) (names []string, err error) {
	from, each := "("+after, limit/buckets+min(limit, 8)
	if after == "" {
		from = "-"
	}
	former := s.hasFormer(ctx)
	parts, err := s.all(ctx, func(b rueidis.Builder) (asked rueidis.Commands) {
		for i := range buckets {
			asked = append(asked, b.Zrangebylex().Key(s.bucketKey(i, "index")).Min(from).Max("+").Limit(0, int64(each)).Build())
		}
		if former {
			asked = append(asked, b.Zrangebylex().Key(s.formerKey("index", "")).Min(from).Max("+").Limit(0, int64(limit)).Build())
		}
		return asked
	})
	if err != nil {
		return nil, err
	}
	known := "" // the names up to this one are all known; "" if all are
	for i, part := range parts {
		some, err := part.AsStrSlice()
		if err != nil {
			return nil, err
		}
		most := each
		if i == buckets {
			most = limit
		}
		if len(some) == most && (known == "" || some[most-1] < known) {
			known = some[most-1]
		}
		names = append(names, some...)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if at, found := slices.BinarySearch(names, known); found {
		names = names[:at+1]
	}
	return names[:min(len(names), limit)], nil
}

// History implements [robotscache.Store].
func (s *Store) History(ctx context.Context, k fetch.Key) ([]robotscache.Version, error) {
	history, err := s.versions(ctx, s.key("h:", k.String()), s.textKey)
	if err == nil && s.hasFormer(ctx) {
		var former []robotscache.Version
		former, err = s.versions(ctx, s.formerKey("h:", k.String()), s.formerTextKey)
		for _, v := range slices.Backward(history) {
			former = robotscache.AddVersion(former, v, s.cfg.Versions)
		}
		history = former
	}
	if err == nil && len(history) == 0 {
		err = robotscache.ErrNotFound
	}
	return history, s.fault("history of "+k.String(), err)
}

// versions returns what a key has of a history, perhaps nothing, and asks how long the server will
// keep its texts.
func (s *Store) versions(ctx context.Context, key string, textKey func(fetch.Sum) string) (history []robotscache.Version, err error) {
	result, err := s.do(ctx, func(ctx context.Context, c rueidis.Client) rueidis.RedisResult {
		return c.Do(ctx, c.B().Lrange().Key(key).Start(0).Stop(-1).Build())
	})
	if err != nil {
		return nil, err
	}
	if err = rueidis.DecodeSliceOfJSON(result, &history); err != nil {
		return nil, fmt.Errorf("%w: %w", robotscache.ErrCorrupt, err)
	}
	answers, err := s.all(ctx, func(b rueidis.Builder) (asked rueidis.Commands) {
		for _, v := range history {
			asked = append(asked, b.Pttl().Key(textKey(v.SHA256)).Build())
		}
		return asked
	})
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	for i, answer := range answers {
		if left, err := answer.AsInt64(); err == nil && left >= 0 { // it is negative if there is no key
			history[i].KeptUntil = now.Add(time.Duration(left) * time.Millisecond)
		}
	}
	return history, nil
}

// Body implements [robotscache.Store].
func (s *Store) Body(ctx context.Context, sha [32]byte) (text []byte, err error) {
	data, err := s.text(ctx, sha)
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
