package crawlgate

import (
	"bytes"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/caddyauth"
)

// slowHash takes its time, and notes when it began.
type slowHash struct {
	caddyauth.Comparer

	begin time.Time
	mu    sync.Mutex
	begun []time.Duration
}

const hashTime = 50 * time.Millisecond

func (h *slowHash) Compare(hash, password []byte) (bool, error) {
	h.mu.Lock()
	h.begun = append(h.begun, time.Since(h.begin))
	h.mu.Unlock()
	time.Sleep(hashTime)
	return bytes.Equal(hash, password), nil
}

// TestPasswordsPause holds that guesses, of users that exist and of others, leave half of the time to others, that each has its
// answer as soon as it is known, and that a password that was right costs no hash again.
func TestPasswordsPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &slowHash{begin: time.Now()}
		a := &account{hash: []byte("right"), comparer: h}
		p := &passwords{accounts: map[string]*account{"user": a}, decoys: []*account{a}, hashing: make(chan struct{}, 1)}
		verify := func(user, password string, want bool, took time.Duration) {
			t.Helper()
			began := time.Now()
			if got := p.verify(t.Context(), user, password); got != want || time.Since(began) != took {
				t.Errorf("%s, %s: %v after %v, want %v after %v", user, password, got, time.Since(began), want, took)
			}
		}
		verify("user", "wrong", false, hashTime)
		verify("nobody", "right", false, 2*hashTime) // after the pause
		verify("user", "right", true, 2*hashTime)
		verify("user", "right", true, 0)
		verify("user", "wrong", false, hashTime) // there is no pause after a right one
		if want := []time.Duration{0, 2 * hashTime, 4 * hashTime, 5 * hashTime}; !slices.Equal(h.begun, want) {
			t.Errorf("hashes began at %v, want %v", h.begun, want)
		}
		time.Sleep(hashTime)
	})
}
