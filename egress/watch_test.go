package egress

import (
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// watching is a watch in a synctest bubble that records its calls of ended.
type watching struct {
	*watch
	began   time.Time
	noticed []time.Duration
	cause   error
}

func newWatching(idle time.Duration) *watching {
	w := &watching{began: time.Now()}
	w.watch = &watch{idle: idle, ended: func(cause error) {
		w.noticed, w.cause = append(w.noticed, time.Since(w.began)), cause
	}}
	return w
}

// over returns the first notice.
func (w *watching) over() (at time.Duration, cause error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.noticed) == 0 {
		return 0, nil
	}
	return w.noticed[0], w.cause
}

func TestWatchIdle(t *testing.T) {
	t.Parallel()
	const limit = time.Minute
	tests := []struct {
		name string
		do   func(*watching)
		want time.Duration // the time of the notice; 0 for none
	}{
		{"never started", func(*watching) {}, 0},
		{"nothing happens", func(w *watching) { w.start(nobody, 0) }, limit},
		{"nothing happens, with a rate", func(w *watching) { w.start(nobody, 1) }, limit},
		{"the origin does nothing", func(w *watching) { w.start(theOrigin, 0) }, limit},
		{"started twice", func(w *watching) { w.start(theOrigin, 0); time.Sleep(limit / 2); w.start(theOrigin, 0) }, limit * 3 / 2},
		{"stopped", func(w *watching) { w.start(theOrigin, 0); w.stop(); w.stop() }, 0},
		{"started again", func(w *watching) { w.start(theOrigin, 0); w.stop(); time.Sleep(limit); w.start(theOrigin, 0) }, 2 * limit},
		{"touched", func(w *watching) {
			w.start(theOrigin, 0)
			for range 10 {
				time.Sleep(limit - 1)
				w.touch(1)
			}
		}, 10*(limit-1) + limit},
		{"the client's turn", func(w *watching) {
			w.start(nobody, 0)
			w.turn(theClient, 0)
			time.Sleep(5*limit + limit/2)
			w.turn(theOrigin, 1)
		}, 6*limit + limit/2},
		{"the client's turn and stopped", func(w *watching) { w.start(nobody, 0); w.turn(theClient, 0); time.Sleep(limit); w.stop() }, 0},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			w := newWatching(limit)
			tt.do(w)
			time.Sleep(20 * limit)
			synctest.Wait()
			w.stop()
			at, cause := w.over()
			if at != tt.want || cause != nil && !errors.Is(cause, errStalled) || len(w.noticed) > 1 {
				t.Errorf("%s: noticed %v at %v, want %v", tt.name, cause, w.noticed, tt.want)
			}
		})
	}
}

// parcel is one party's step in a simulated transfer: some bytes and the time that they take.
type parcel struct {
	client, origin time.Duration
	bytes          int
}

func many(n int, p parcel) []parcel {
	all := make([]parcel, n)
	for i := range all {
		all[i] = p
	}
	return all
}

// transfer runs the parcels, as an upload or as a download.
func (w *watching) transfer(upload bool, rate int64, parcels []parcel) {
	if upload {
		w.start(nobody, rate)
	} else {
		w.start(theOrigin, rate)
	}
	for _, p := range parcels {
		if upload {
			w.turn(theClient, 0)
			time.Sleep(p.client)
			w.turn(theOrigin, p.bytes)
			time.Sleep(p.origin)
		} else {
			time.Sleep(p.origin)
			w.turn(theClient, p.bytes)
			time.Sleep(p.client)
			w.turn(theOrigin, 0)
		}
		if _, cause := w.over(); cause != nil {
			return
		}
	}
	w.stop()
}

// TestWatchRate lets both parties send and read, below the rate and above it.
func TestWatchRate(t *testing.T) {
	t.Parallel()
	const rate = 100
	fast := many(60, parcel{time.Second, time.Second, 32 << 10})
	for _, tt := range []struct {
		name    string
		parcels []parcel
		up      error // as an upload
		down    error // as a download
		most    time.Duration
	}{
		{"a byte every 18 s of the client", many(99, parcel{18 * time.Second, 0, 1}), errSlowClient, errSlowClient, 75 * time.Second},
		{"a byte every 18 s of the origin", many(99, parcel{0, 18 * time.Second, 1}), errSlowOrigin, errSlowOrigin, 75 * time.Second},
		{"a byte every 36 s of both", many(99, parcel{18 * time.Second, 18 * time.Second, 1}), errSlowClient, errSlowOrigin, 150 * time.Second},
		{"a client just below the rate", many(99, parcel{time.Second, 0, 99}), errSlowClient, errSlowClient, 75 * time.Second},
		{"a client just above", many(99, parcel{time.Second, time.Millisecond, 103}), nil, nil, 0},
		{"an origin just above", many(99, parcel{time.Millisecond, time.Second, 103}), nil, nil, 0},
		{"spurts", many(9, parcel{30 * time.Second, 0, 6001}), nil, nil, 0},
		{"a large piece, and an origin that needs minutes for it", many(9, parcel{0, 4 * time.Minute, 32 << 10}), nil, errSlowOrigin, 75 * time.Second},
		{"a large piece, and a client that needs minutes for it", many(9, parcel{4 * time.Minute, 0, 32 << 10}), errSlowClient, nil, 75 * time.Second},
		{"a slow end", append(fast, many(99, parcel{18 * time.Second, 0, 1})...), errSlowClient, errSlowClient, 5 * time.Minute},
		{"a slow party, while the other's time does not count", many(3, parcel{0, 19 * time.Second, 1}), nil, nil, 0},
	} {
		for _, upload := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				want := tt.down
				if upload {
					want = tt.up
				}
				w := newWatching(defaultIdle)
				w.transfer(upload, rate, tt.parcels)
				if at, cause := w.over(); !errors.Is(cause, want) || at > tt.most {
					t.Errorf("%s, upload %v: noticed %v at %v, want %v within %v", tt.name, upload, cause, at, want, tt.most)
				}
				w = newWatching(defaultIdle)
				w.transfer(upload, 0, tt.parcels)
				if at, cause := w.over(); cause != nil {
					t.Errorf("%s, upload %v: without a rate noticed %v at %v", tt.name, upload, cause, at)
				}
			})
		}
	}
}

// TestWatchRateModel runs random transfers. Parties that are above the rate in every piece must not
// be ended; one at half of the rate must be.
func TestWatchRateModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 20))
			rate := 1 + rnd.Int64N(2000)
			upload := seed%2 == 0
			parcels := make([]parcel, 0, 200)
			for range 200 {
				p := parcel{bytes: 1 + rnd.IntN(32<<10)}
				allowed := time.Duration(p.bytes) * time.Second / time.Duration(rate)
				// A piece that a party reads counts from its first byte on, one that it sends only
				// with its last byte.
				taking, sending := &p.client, &p.origin
				if upload {
					taking, sending = sending, taking
				}
				*taking = min(time.Duration(rnd.Int64N(int64(allowed))), defaultIdle-1)
				*sending = min(time.Duration(rnd.Int64N(int64(allowed)))/2, rateWindow/6)
				parcels = append(parcels, p)
			}
			w := newWatching(defaultIdle)
			w.transfer(upload, rate, parcels)
			if at, cause := w.over(); cause != nil {
				t.Errorf("seed %d: noticed %v at %v, although each piece was above the rate", seed, cause, at)
			}
			slow := rnd.IntN(2) == 0
			for i := range parcels {
				each := time.Duration(1+rnd.Int64N(20)) * time.Second
				parcels[i] = parcel{bytes: int(rate * int64(each) / int64(time.Second) / 2), client: each}
				if slow {
					parcels[i].client, parcels[i].origin = 0, each
				}
			}
			w = newWatching(defaultIdle)
			w.transfer(upload, rate, parcels)
			want := map[bool]error{false: errSlowClient, true: errSlowOrigin}[slow]
			if at, cause := w.over(); !errors.Is(cause, want) || at > rateWindow+rateTick+20*time.Second {
				t.Errorf("seed %d: noticed %v at %v, want %v", seed, cause, at, want)
			}
		})
	}
}

// TestWatchBodyDeadline checks the limit for a whole body, from its first byte to its last one or
// to the answer.
func TestWatchBodyDeadline(t *testing.T) {
	t.Parallel()
	const limit = 2 * time.Minute
	for _, tt := range []struct {
		name string
		do   func(*requestBody)
		want time.Duration
	}{
		{"never read", func(*requestBody) {}, 0},
		{"read slowly", func(b *requestBody) { b.Read(make([]byte, 1)) }, time.Minute + limit},
		{"read to its end", func(b *requestBody) { io.ReadAll(b) }, 0},
		{"answered", func(b *requestBody) { b.Read(make([]byte, 1)); b.answer() }, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWatching(time.Hour)
			w.start(nobody, 0)
			b := &requestBody{src: strings.NewReader("body"), reading: make(chan struct{}, 1), watch: w.watch, limit: limit}
			time.Sleep(time.Minute)
			tt.do(b)
			time.Sleep(50 * time.Minute)
			w.stop()
			if at, cause := w.over(); at != tt.want || cause != nil && !errors.Is(cause, errBodyTimeout) {
				t.Errorf("%s: noticed %v at %v, want %v", tt.name, cause, at, tt.want)
			}
		})
	}
}

// TestWatchLastPiece checks that an origin that does not read the last piece of a body is given up,
// unless it has read the whole request.
func TestWatchLastPiece(t *testing.T) {
	t.Parallel()
	for _, taken := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWatching(time.Minute)
			w.start(nobody, 0)
			b := &requestBody{src: strings.NewReader("body"), reading: make(chan struct{}, 1), watch: w.watch}
			if _, err := io.ReadAll(b); err != nil {
				t.Fatal(err)
			}
			if taken {
				b.written()
			}
			time.Sleep(time.Hour)
			if at, cause := w.over(); taken != (cause == nil) || !taken && at != time.Minute {
				t.Errorf("taken %v: noticed %v at %v", taken, cause, at)
			}
		})
	}
}
