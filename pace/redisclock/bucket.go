package redisclock

import (
	"context"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/crawlgate/crawlgate/cluster/link"
	"github.com/crawlgate/crawlgate/pace"
)

// buckets is into how many parts the clocks are divided: many enough for even loads on the nodes of
// a cluster, and few enough to note the era of each.
const buckets = 1024

// bucketOf returns the bucket of a clock. The clocks of a host and of its site share a bucket, so
// one call reserves at all of them.
func bucketOf(key string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(pace.Home(key)))
	return int(h.Sum32() % buckets)
}

// part is the demands of a request on the clocks of one bucket.
type part struct {
	bucket  int
	demands []pace.Demand
}

// inBuckets cuts demands where the bucket changes.
func inBuckets(demands []pace.Demand) (parts []part) {
	for i, d := range demands {
		bucket := bucketOf(d.Key)
		if last := len(parts) - 1; last >= 0 && parts[last].bucket == bucket {
			begin := i - len(parts[last].demands)
			parts[last].demands = demands[begin : i+1]
		} else {
			parts = append(parts, part{bucket, demands[i : i+1]})
		}
	}
	return parts
}

// tag begins the keys of a bucket. In a cluster all of them are on one node, as the scripts need.
func (k *Clock) tag(bucket int) string {
	return "{" + k.link.Prefix + ":pace:" + strconv.Itoa(bucket) + "}:"
}

func (k *Clock) eraKey(bucket int) string    { return k.tag(bucket) + "era" }
func (k *Clock) clockKey(name string) string { return k.tag(bucketOf(name)) + "key:" + name }

// keys names the clocks of a part, and places those that count places.
func (k *Clock) keys(p part) (clocks, places []string) {
	tag := k.tag(p.bucket)
	for _, d := range p.demands {
		key := tag + "key:" + d.Key
		clocks = append(clocks, key)
		if d.Places > 0 {
			places = append(places, key+" places")
		}
	}
	return clocks, places
}

// lookPause is the least time between two looks that find losses.
const lookPause = 5 * time.Second

// keepEras notes eras when Redis has come back, or when a bucket has lost its memory: then others
// have too. Else each bucket would be found out later, with its first request, and hold that up.
func (k *Clock) keepEras() {
	for {
		select {
		case <-k.look:
		case <-k.ctx.Done():
			return
		}
		if !k.noteEras() {
			continue
		}
		select {
		case <-time.After(lookPause):
		case <-k.ctx.Done():
			return
		}
	}
}

// noteEras repeats as long as it finds losses, because another gateway may be doing the same. It
// reports whether it found one. The script that notes a loss also announces it: a separate message
// could fail, and nobody else would find the loss.
func (k *Clock) noteEras() (lost bool) {
	const step = 64
	for from, found := 0, true; found && from < buckets; from += step {
		found = false
		asks := make([]rueidis.LuaExec, step)
		for i := range asks {
			asks[i] = rueidis.LuaExec{Keys: []string{k.eraKey(from + i)}, Args: []string{k.channel, k.lost}}
		}
		ctx, cancel := context.WithTimeout(k.ctx, link.Timeout)
		for _, answer := range eraScript.ExecMulti(ctx, k.link.Client(), asks...) {
			n, _ := answer.AsInt64() // if it fails, the first request finds out
			found = found || n == 1
		}
		cancel()
		lost = lost || found
	}
	return lost
}
