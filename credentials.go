package crawlgate

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp/caddyauth"
	"golang.org/x/crypto/bcrypt"
)

// passwords checks the proxy credentials of agents with the hashes that Caddy's own basic_auth takes.
//
// A hash is slow on purpose, some 50 ms, and a crawler sends its credentials with every request: so the last password
// of each user that was right is remembered, as a keyed digest that is worth nothing outside this process. Wrong
// ones are not; so few hashes are computed at a time that one processor, if there are several, is left for all else, and
// after a wrong one there is a pause of the same length: guessing costs the guesser time, and others little.
//
// It is safe for concurrent use.
type passwords struct {
	key      [32]byte
	accounts map[string]*account
	decoys   []*account // stands in for a user that does not exist
	hashing  chan struct{}
}

type account struct {
	hash     []byte
	comparer caddyauth.Comparer
	verified atomic.Pointer[[sha256.Size]byte]
}

// verifier returns the check for the credentials of all agents, nil if there are none.
func (h *Handler) verifier() func(ctx context.Context, user, password string) bool {
	p := &passwords{accounts: make(map[string]*account), hashing: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)-1))}
	rand.Read(p.key[:]) // never fails, by its contract
	for _, a := range h.Agents {
		for _, c := range a.Credentials {
			p.accounts[c.User] = &account{hash: []byte(c.Hash), comparer: comparerFor(c.Hash)}
		}
	}
	if len(p.accounts) == 0 {
		return nil
	}
	users := make([]string, 0, len(p.accounts))
	for user := range p.accounts {
		users = append(users, user)
	}
	slices.Sort(users)
	for _, user := range users {
		p.decoys = append(p.decoys, p.accounts[user])
	}
	return p.verify
}

// comparerFor returns the algorithm of a hash by its prefix (Modular Crypt Format), nil if there is none.
func comparerFor(hash string) caddyauth.Comparer {
	switch {
	case strings.HasPrefix(hash, "$argon2id$"):
		return caddyauth.Argon2idHash{}
	case strings.HasPrefix(hash, "$2"):
		return caddyauth.BcryptHash{}
	}
	return nil
}

var errHash = errors.New("the hash is not of bcrypt or argon2id; make one with: crawlgate hash-password")

// checkHash refuses a hash that no password could ever fit. The error does not repeat it: it may be a password
// written in the wrong place.
func checkHash(hash string) error {
	comparer := comparerFor(hash)
	if comparer == nil {
		return errHash
	}
	if _, isBcrypt := comparer.(caddyauth.BcryptHash); isBcrypt {
		if _, err := bcrypt.Cost([]byte(hash)); err != nil {
			return errHash
		}
		return nil
	}
	if _, err := comparer.Compare([]byte(hash), []byte("x")); err != nil {
		return errHash
	}
	return nil
}

// verify reports whether the password is that of the user. For a user that does not exist it computes the hash of
// one that does, so that the time taken tells nothing.
func (p *passwords) verify(ctx context.Context, user, password string) bool {
	a, known := p.accounts[user]
	digest := p.digest(user, password)
	if known && a.remembers(digest) {
		return true
	}
	if !known {
		a = p.decoy(digest)
	}
	select {
	case p.hashing <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	var pause time.Duration
	defer func() { time.AfterFunc(pause, func() { <-p.hashing }) }()
	if known && a.remembers(digest) { // found out while this request waited
		return true
	}
	began := time.Now()
	right, err := a.comparer.Compare(a.hash, []byte(password))
	if err != nil || !right || !known {
		pause = time.Since(began)
		return false
	}
	a.verified.Store(&digest)
	return true
}

// decoy picks the same account for the same guess, so that repeating it tells nothing either.
func (p *passwords) decoy(digest [sha256.Size]byte) *account {
	return p.decoys[binary.BigEndian.Uint64(digest[:8])%uint64(len(p.decoys))]
}

func (p *passwords) digest(user, password string) (sum [sha256.Size]byte) {
	mac := hmac.New(sha256.New, p.key[:])
	mac.Write([]byte(user))
	mac.Write([]byte{0}) // no user name has it
	mac.Write([]byte(password))
	mac.Sum(sum[:0])
	return sum
}

func (a *account) remembers(digest [sha256.Size]byte) bool {
	verified := a.verified.Load()
	return verified != nil && hmac.Equal(verified[:], digest[:])
}
