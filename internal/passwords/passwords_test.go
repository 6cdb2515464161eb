package passwords

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/caddyauth"

	"github.com/crawlgate/crawlgate/enforce"
)

// slowHash compares slowly, and records its arguments.
type slowHash struct {
	caddyauth.Comparer

	mu       sync.Mutex
	compared []string
}

const slowHashTime = time.Second

func (h *slowHash) Compare(hash, password []byte) (bool, error) {
	h.mu.Lock()
	h.compared = append(h.compared, string(password))
	h.mu.Unlock()
	time.Sleep(slowHashTime)
	return bytes.Equal(hash, password), nil
}

// hashRig has the users ann and bob, whose passwords are their names, and one processor.
type hashRig struct {
	Checker
	*slowHash
	t     *testing.T
	group sync.WaitGroup
}

func newHashRig(t *testing.T) *hashRig {
	t.Helper()
	r := &hashRig{slowHash: new(slowHash), t: t, Checker: Checker{hashes: newHashing(1)}}
	for _, user := range []string{"ann", "bob"} {
		r.add(user, account{[]byte(user), r.slowHash})
	}
	return r
}

var (
	here  = netip.MustParseAddr("10.0.0.1")
	there = netip.MustParseAddr("10.0.0.2")
)

// ask checks the password in parallel with others, but after the previous ones.
func (r *hashRig) ask(source netip.Addr, user, password string, want enforce.PasswordCheck) {
	r.t.Helper()
	r.group.Go(func() {
		if got := r.Verify(r.t.Context(), source, user, password); got != want {
			r.t.Errorf("%s from %s: %q is %d, want %d", user, source, password, got, want)
		}
	})
	synctest.Wait()
}

// took waits for all answers and checks how long they took.
func (r *hashRig) took(want time.Duration) {
	r.t.Helper()
	began := time.Now()
	r.group.Wait()
	synctest.Wait()
	if got := time.Since(began); got != want {
		r.t.Errorf("it took %v, want %v", got, want)
	}
}

func (r *hashRig) order(want ...string) {
	r.t.Helper()
	if !slices.Equal(r.compared, want) {
		r.t.Errorf("compared %q, want %q", r.compared, want)
	}
}

// TestPasswordsCostOneHash checks that neither a right nor a wrong password costs a second hash, at
// the same time or soon after, and that a wrong one is checked again after a while.
func TestPasswordsCostOneHash(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newHashRig(t)
		for range 3 {
			for range 20 {
				r.ask(here, "ann", "ann", enforce.PasswordRight)
				r.ask(there, "ann", "wrong", enforce.PasswordWrong)
				r.ask(there, "nobody", "ann", enforce.PasswordWrong)
			}
			r.group.Wait()
		}
		r.order("ann", "ann", "wrong") // the second is a decoy for an unknown user
		time.Sleep(refusedFor)
		r.ask(there, "ann", "wrong", enforce.PasswordWrong)
		r.took(slowHashTime)
		r.ask(there, "ann", "ann", enforce.PasswordRight)
		r.took(0)
	})
}

// TestPasswordsTakeTurns checks the order in which passwords leave the queue: by source, then by
// user, then the newest first.
func TestPasswordsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newHashRig(t)
		for i := range 3 {
			r.ask(here, "ann", fmt.Sprintf("ann %d", i), enforce.PasswordWrong)
			r.ask(here, "bob", fmt.Sprintf("bob %d", i), enforce.PasswordWrong)
		}
		r.ask(there, "eve", "eve 0", enforce.PasswordWrong)
		r.ask(there, "eve", "eve 1", enforce.PasswordWrong)
		r.ask(here, "ann", "ann", enforce.PasswordRight)
		r.took(9 * slowHashTime)
		r.order("ann 0", "eve 1", "bob 2", "eve 0", "ann", "bob 1", "ann 2", "bob 0", "ann 1")
	})
}

// TestPasswordsLeaveRoom checks that one source gets half of the places, and that another source
// finds one.
func TestPasswordsLeaveRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newHashRig(t)
		r.ask(here, "ann", "first", enforce.PasswordWrong) // starts at once
		for i := range hashesWaiting / 2 {
			r.group.Go(func() { _ = r.Verify(t.Context(), here, "ann", fmt.Sprint(i)) }) // the result does not matter here
		}
		synctest.Wait()
		began := time.Now()
		if got := r.Verify(t.Context(), here, "bob", "bob"); got != enforce.PasswordUnchecked || time.Since(began) != 0 {
			t.Errorf("beyond the bound: %d after %v, want to be refused at once", got, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), slowHashTime/2)
		defer cancel()
		if got := r.Verify(ctx, there, "bob", "wrong"); got != enforce.PasswordUnchecked || time.Since(began) != slowHashTime/2 {
			t.Errorf("one that leaves: %d after %v, want no answer when it leaves", got, time.Since(began))
		}
		if got := r.Verify(t.Context(), there, "bob", "bob"); got != enforce.PasswordRight || time.Since(began) != 2*slowHashTime {
			t.Errorf("another source: %d after %v, want its turn to be next", got, time.Since(began))
		}
		time.Sleep(hashWait)
		synctest.Wait()
		if n := len(r.hashes.waiting) + len(r.hashes.checks) - r.hashes.running; n != 0 {
			t.Errorf("%d checks still wait after %v, want 0", n, hashWait)
		}
	})
}

// TestPasswordsRememberFew checks the limit on the wrong passwords that are kept.
func TestPasswordsRememberFew(t *testing.T) {
	t.Parallel()
	h := newHashing(1)
	now := time.Now()
	for i := range 3 * refusedKept {
		keep(h.refused, refusedKept, h.digest("user", nil, fmt.Sprint(i)), now)
	}
	last := h.digest("user", nil, "last")
	keep(h.refused, refusedKept, last, now.Add(refusedFor))
	if n := len(h.refused); n != 1 {
		t.Errorf("%d refused passwords are kept, want the last one only", n)
	}
	if h.refused[last].IsZero() {
		t.Error("the newest refused password is forgotten")
	}
}

// TestPasswordsOutliveReloads checks that the next configuration knows a password that was right,
// unless its hash has changed.
func TestPasswordsOutliveReloads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newHashRig(t)
		r.ask(here, "ann", "ann", enforce.PasswordRight)
		r.took(slowHashTime)
		next := Checker{hashes: r.hashes}
		next.add("ann", account{[]byte("ann"), r.slowHash})
		r.Checker = next
		r.ask(here, "ann", "ann", enforce.PasswordRight)
		r.took(0)
		r.add("ann", account{[]byte("other"), r.slowHash})
		r.ask(here, "ann", "ann", enforce.PasswordWrong)
		r.took(slowHashTime)
	})
}

// TestPasswordsRememberFewRight checks the limit on the right passwords that are kept.
func TestPasswordsRememberFewRight(t *testing.T) {
	t.Parallel()
	h := newHashing(1)
	for i := range rightKept {
		keep(h.right, rightKept, digest{byte(i), byte(i >> 8)}, true)
	}
	if len(h.right) != rightKept {
		t.Errorf("%d of %d right passwords are kept", len(h.right), rightKept)
	}
	last := h.digest("user", nil, "last")
	keep(h.right, rightKept, last, true)
	if !h.right[last] || len(h.right) > 1 {
		t.Errorf("%d right passwords are kept, want the last one", len(h.right))
	}
}

func TestPasswordsTakeKnownHashesOnly(t *testing.T) {
	t.Parallel()
	for hash, ok := range map[string]bool{
		"": false, "secret": false, "$2a$": false, "$argon2id$": false, "$1$abc": false,
		"$2a$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy": true,
	} {
		if err := new(Checker).Add("ann", hash); (err == nil) != ok || err != nil && hash != "" && strings.Contains(err.Error(), hash) {
			t.Errorf("Add with the hash %q: got %v", hash, err)
		}
	}
}
