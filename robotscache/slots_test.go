package robotscache

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
)

// Retrievals of a class begin in order, and no more at once or in a second than allowed.
func TestSlots_OrderAndRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		starts := make(map[string]time.Duration) // by host
		var mu sync.Mutex
		c := newCache(Config{
			Store: noStore{}, InFlight: 200, Parallel: 40, // 120 a second, 30 of them at once
			Fetcher: fetcherFunc(func(ctx context.Context, k fetch.Key, _ fetch.Gate) fetch.Outcome {
				mu.Lock()
				starts[k.Origin.Host] = time.Since(began)
				mu.Unlock()
				<-ctx.Done() // after 20 s
				return fetch.Outcome{Cause: fetch.CauseTimeout}
			}),
		}.filled(), DroppingTier{})
		defer c.Close()
		for i := range 200 {
			go c.Refresh(t.Context(), origin.Origin{Scheme: "http", Host: fmt.Sprintf("%03d", i), Port: 80})
			synctest.Wait()
		}
		for _, tt := range []struct {
			at   time.Duration
			want int
		}{
			{0, 30}, {500 * time.Millisecond, 90}, {time.Second, 150}, {19 * time.Second, 150},
		} {
			time.Sleep(tt.at - time.Since(began))
			synctest.Wait()
			mu.Lock()
			if len(starts) != tt.want || starts[fmt.Sprintf("%03d", tt.want-1)] != slices.Max(slices.Collect(maps.Values(starts))) {
				t.Errorf("after %v %d began, want the first %d", tt.at, len(starts), tt.want)
			}
			mu.Unlock()
		}
		time.Sleep(time.Minute)
	})
}

// fetcherFunc is a function that implements Fetcher.
type fetcherFunc func(context.Context, fetch.Key, fetch.Gate) fetch.Outcome

func (f fetcherFunc) Fetch(ctx context.Context, k fetch.Key, gate fetch.Gate) fetch.Outcome {
	return f(ctx, k, gate)
}

// noStore stores nothing.
type noStore struct{ Store }

func (noStore) Load(context.Context, fetch.Key) (fetch.Record, error) {
	return fetch.Record{}, ErrNotFound
}

func (noStore) Save(context.Context, ...fetch.Record) error { return nil }
func (noStore) Close() error                                { return nil }

// However small the limits are, each class gets a share, and the shares exceed only the smallest
// limits.
func TestClass_Share(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 1000; n++ {
		sum := 0
		for cl := range classes {
			if cl.share(n) < 1 {
				t.Fatalf("class %d has no share of %d", cl, n)
			}
			sum += cl.share(n)
		}
		if sum > n && n > 4 {
			t.Fatalf("the shares of %d add up to %d, want at most the limit", n, sum)
		}
	}
}
