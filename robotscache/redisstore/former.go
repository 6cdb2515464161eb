package redisstore

import (
	"context"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
)

// The former format had the same values, but all its keys in one slot. The store reads it if the
// current format has no value, and never writes it. Delete deletes in both.

func (s *Store) formerKey(kind, name string) string {
	return "{" + s.link.Prefix + "}:robots:2:" + kind + name
}

func (s *Store) formerTextKey(sha fetch.Sum) string {
	return s.formerKey("t:", hex.EncodeToString(sha[:]))
}

// getFormer returns the value of a key of the former format.
func (s *Store) getFormer(ctx context.Context, key string) ([]byte, error) {
	if !s.hasFormer(ctx) {
		return nil, robotscache.ErrNotFound
	}
	return s.getOne(ctx, key)
}

// hasFormer reports whether a record of the former format may exist. It asks the server until it
// gets an answer. If the server refuses the key, no record exists.
func (s *Store) hasFormer(ctx context.Context) bool {
	if known := s.former.Load(); known != nil {
		return *known
	}
	since := strconv.FormatInt(time.Now().Add(-s.times.Load().records).Unix(), 10)
	result, err := s.do(ctx, func(ctx context.Context, c rueidis.Client) rueidis.RedisResult {
		return c.Do(ctx, c.B().Zcount().Key(s.formerKey("seen", "")).Min(since).Max("+inf").Build())
	})
	n, _ := result.AsInt64()
	why, refused := rueidis.IsRedisErr(result.Error())
	refused = refused && strings.HasPrefix(why.Error(), "NOPERM") // any other error may pass
	if err == nil || refused {
		s.former.Store(new(n > 0))
	}
	return n > 0 || err != nil && !refused
}
