// Package passwords checks passwords against slow hashes, a few at a time. If it checked all at
// once, wrong passwords would take the CPUs from everything else in the process.
package passwords

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/caddyauth"
	"golang.org/x/crypto/bcrypt"

	"github.com/crawlgate/crawlgate/enforce"
)

// Checker checks the passwords of agents and operators against the hashes that Caddy's own
// basic_auth accepts.
//
// A hash is slow on purpose, some 100 ms with argon2id and a second with bcrypt, and a crawler
// sends its credentials with every request. So a right password is remembered, as a keyed digest
// that is worth nothing outside this process, and wrong ones are remembered for a while. Both
// outlive reloads. All other passwords wait for their turn in hashes.
//
// A Checker is safe for concurrent use once the last account has been added. The zero value has no
// account.
type Checker struct {
	hashes   *hashing           // nil means the process's
	accounts map[string]account // by user
	users    []string           // sorted; one of them stands in for a user that does not exist
}

type account struct {
	hash     []byte
	comparer caddyauth.Comparer
}

// Add adds an account by the hash of its password.
func (p *Checker) Add(user, hash string) error {
	comparer, err := comparerFor(hash)
	if err != nil {
		return err
	}
	p.add(user, account{[]byte(hash), comparer})
	return nil
}

func (p *Checker) add(user string, a account) {
	if p.accounts == nil {
		p.accounts = make(map[string]account)
	}
	if p.hashes == nil {
		p.hashes = hashes
	}
	if i, known := slices.BinarySearch(p.users, user); !known {
		p.users = slices.Insert(p.users, i, user)
	}
	p.accounts[user] = a
}

var errHash = errors.New("the hash is not of bcrypt or argon2id; make one with: crawlgate hash-password")

// comparerFor returns the algorithm of a hash by its prefix (Modular Crypt Format). It refuses a
// hash that no password could ever fit. The error does not repeat the hash, because it may be a
// password written in the wrong place.
func comparerFor(hash string) (caddyauth.Comparer, error) {
	switch {
	case strings.HasPrefix(hash, "$argon2id$"):
		if _, err := (caddyauth.Argon2idHash{}).Compare([]byte(hash), []byte("x")); err != nil {
			return nil, errHash
		}
		return caddyauth.Argon2idHash{}, nil
	case strings.HasPrefix(hash, "$2"):
		if _, err := bcrypt.Cost([]byte(hash)); err != nil {
			return nil, errHash
		}
		return caddyauth.BcryptHash{}, nil
	}
	return nil, errHash
}

// Verify checks whether the password is the user's. If the user does not exist, Verify computes the
// hash of one that does, so that the time taken tells nothing.
func (p *Checker) Verify(ctx context.Context, source netip.Addr, user, password string) enforce.PasswordCheck {
	a, known := p.accounts[user]
	if !known {
		if len(p.users) == 0 {
			return enforce.PasswordWrong
		}
		a = p.decoy(user)
	}
	return p.hashes.check(ctx, source, user, p.hashes.digest(user, a.hash, password), func() bool {
		fits, err := a.comparer.Compare(a.hash, []byte(password))
		return err == nil && fits && known
	})
}

// decoy picks the same account for the same name, so that repeating it tells nothing either.
func (p *Checker) decoy(user string) account {
	sum := p.hashes.digest(user, nil, "")
	return p.accounts[p.users[binary.BigEndian.Uint64(sum[:8])%uint64(len(p.users))]]
}

const (
	// hashesWaiting bounds the passwords that wait to be checked. One source may occupy as many places
	// as it leaves free. So it gets half of them if it is alone, and there is always room for others.
	hashesWaiting = 256
	// hashWait is how long a request waits for its password to be checked.
	hashWait = 30 * time.Second
	// refusedKept and refusedFor bound how many wrong passwords are remembered, and for how long. No
	// hash is computed for these. Beyond that number all of them are forgotten.
	refusedKept = 1024
	refusedFor  = time.Minute
	// rightKept bounds the passwords that are remembered as right, some 80 bytes each. Beyond it all
	// of them have to be checked once more.
	rightKept = 1 << 16
	// turnsKept bounds the sources and users whose last turn is remembered.
	turnsKept = 1024
)

// hashing computes the hashes of passwords for all configurations of the process, a few at a time.
// Sources take turns and, within a source, users. The newest password of a user is next: a guesser
// waits for its answers, so a right password that arrives in the meantime is the newest.
//
// It is safe for concurrent use.
type hashing struct {
	key      [32]byte // makes the digests
	parallel int

	mu      sync.Mutex
	running int
	checks  map[digest]*check // waiting and running
	waiting []*check          // in the order of their arrival
	right   map[digest]bool
	refused map[digest]time.Time
	turn    uint64           // counts the turns
	turns   map[asker]uint64 // the last one of each source and of each of its users
}

// asker is a source or, with a user's name, one of the source's users.
type asker struct {
	source netip.Addr
	user   string
}

// check is the check of one password, for all requests that bring it at the same time.
type check struct {
	asker
	digest   digest
	compute  func() bool
	requests int
	done     chan struct{}
	right    bool // valid once done is closed
}

// hashes leaves one CPU free if there are several: on a CPU that computes hashes, a request would
// wait for some 30 ms.
var hashes = newHashing(max(1, runtime.GOMAXPROCS(0)-1))

func newHashing(parallel int) *hashing {
	h := &hashing{
		parallel: parallel,
		checks:   make(map[digest]*check),
		right:    make(map[digest]bool),
		refused:  make(map[digest]time.Time),
		turns:    make(map[asker]uint64),
	}
	rand.Read(h.key[:]) // never fails, by its contract
	return h
}

// digest stands for a user, an account's hash and a password.
type digest [sha256.Size]byte

func (h *hashing) digest(user string, hash []byte, password string) (d digest) {
	mac := hmac.New(sha256.New, h.key[:])
	mac.Write([]byte(user))
	mac.Write([]byte{0}) // neither a user name nor a hash contains it
	mac.Write(hash)
	mac.Write([]byte{0})
	mac.Write([]byte(password))
	mac.Sum(d[:0])
	return d
}

// check calls compute once for all callers with the same digest, when it is its turn.
func (h *hashing) check(ctx context.Context, source netip.Addr, user string, d digest, compute func() bool) enforce.PasswordCheck {
	if source.Is6() {
		network, _ := source.Prefix(64) // a client that has one address of the network has them all
		source = network.Addr()
	}
	h.mu.Lock()
	if h.right[d] {
		h.mu.Unlock()
		return enforce.PasswordRight
	}
	if time.Now().Before(h.refused[d]) {
		h.mu.Unlock()
		return enforce.PasswordWrong
	}
	c := h.checks[d]
	if c == nil {
		if !h.room(source) {
			h.mu.Unlock()
			return enforce.PasswordUnchecked
		}
		c = &check{asker: asker{source, user}, digest: d, compute: compute, done: make(chan struct{})}
		h.checks[d] = c
		h.waiting = append(h.waiting, c)
		h.begin()
	}
	c.requests++
	h.mu.Unlock()
	return h.await(ctx, c)
}

// room reports whether another password of the source may wait.
func (h *hashing) room(source netip.Addr) bool {
	mine := 0
	for _, c := range h.waiting {
		if c.source == source {
			mine++
		}
	}
	return mine < hashesWaiting-len(h.waiting)
}

func (h *hashing) await(ctx context.Context, c *check) enforce.PasswordCheck {
	ctx, cancel := context.WithTimeout(ctx, hashWait)
	defer cancel()
	select {
	case <-c.done:
		if c.right {
			return enforce.PasswordRight
		}
		return enforce.PasswordWrong
	case <-ctx.Done():
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c.requests--
	if i := slices.Index(h.waiting, c); i >= 0 && c.requests == 0 {
		h.waiting = slices.Delete(h.waiting, i, i+1)
		delete(h.checks, c.digest)
	}
	return enforce.PasswordUnchecked
}

// begin starts as many checks as may run. The caller holds the lock.
func (h *hashing) begin() {
	for h.running < h.parallel && len(h.waiting) > 0 {
		c := h.next()
		h.running++
		go h.run(c)
	}
}

// next removes and returns the check whose turn it is: the source had its last turn longest ago,
// then the user did, and of a user's checks it is the newest.
func (h *hashing) next() *check {
	best := 0
	for i, c := range h.waiting {
		b := h.waiting[best]
		bySource, byUser := h.turns[asker{source: c.source}], h.turns[c.asker]
		bestSource, bestUser := h.turns[asker{source: b.source}], h.turns[b.asker]
		if bySource < bestSource || bySource == bestSource && byUser <= bestUser {
			best = i
		}
	}
	c := h.waiting[best]
	h.waiting = slices.Delete(h.waiting, best, best+1)
	if len(h.turns) >= turnsKept {
		clear(h.turns)
	}
	h.turn++
	h.turns[asker{source: c.source}], h.turns[c.asker] = h.turn, h.turn
	return c
}

func (h *hashing) run(c *check) {
	c.right = c.compute()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.running--
	delete(h.checks, c.digest)
	if c.right {
		keep(h.right, rightKept, c.digest, true)
	} else {
		keep(h.refused, refusedKept, c.digest, time.Now().Add(refusedFor))
	}
	if len(h.waiting) == 0 {
		clear(h.turns)
	}
	h.begin()
	close(c.done)
}

// keep adds an answer to a map. If the map has most of them, they are forgotten.
func keep[V any](answers map[digest]V, most int, d digest, v V) {
	if len(answers) >= most {
		clear(answers)
	}
	answers[d] = v
}
