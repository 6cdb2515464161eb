package crawlgate

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp/caddyauth"
	"golang.org/x/crypto/bcrypt"

	"github.com/crawlgate/crawlgate/enforce"
)

// passwords checks the proxy credentials of agents with the hashes that Caddy's own basic_auth takes.
//
// A hash is slow on purpose, some 100 ms with argon2id and a second with bcrypt, and a crawler sends its credentials with
// every request. So the password of each account that was right is remembered, as a keyed digest that is worth nothing
// outside this process, and wrong ones are remembered for a while. All else waits for its turn in hashes.
//
// It is safe for concurrent use once [passwords.share] has returned.
type passwords struct {
	hashes   *hashing
	accounts map[string]*account // by user
	decoys   []*account          // one of them stands in for a user that does not exist
	shared   []accountKey        // what is held in the pool
}

// accountKey names an account in the pool: with another hash it is another account.
type accountKey struct{ user, hash string }

type account struct {
	hash     []byte
	comparer caddyauth.Comparer
	verified atomic.Pointer[digest]
}

// digest stands for a user, an account's hash and a password.
type digest [sha256.Size]byte

func newPasswords(agents []AgentConfig) *passwords {
	p := &passwords{hashes: hashes, accounts: make(map[string]*account)}
	for _, a := range agents {
		for _, c := range a.Credentials {
			p.accounts[c.User] = newAccount(c.Hash)
		}
	}
	p.settle()
	return p
}

func newAccount(hash string) *account {
	return &account{hash: []byte(hash), comparer: comparerFor(hash)}
}

// settle lists the decoys in an order that does not change from one configuration to the next.
func (p *passwords) settle() {
	users := make([]string, 0, len(p.accounts))
	for user := range p.accounts {
		users = append(users, user)
	}
	slices.Sort(users)
	p.decoys = nil
	for _, user := range users {
		p.decoys = append(p.decoys, p.accounts[user])
	}
}

// share puts in place of each account the one that another configuration knows already, so that no reload forgets which
// password was right. The caller must release it, once, also after an error.
func (p *passwords) share() error {
	for user, a := range p.accounts {
		key := accountKey{user, string(a.hash)}
		value, _, err := pool.LoadOrNew(key, func() (caddy.Destructor, error) { return a, nil })
		if err != nil {
			return err
		}
		known, ok := value.(*account)
		if !ok {
			return fmt.Errorf("usage pool holds a %T for an account", value)
		}
		p.accounts[user] = known
		p.shared = append(p.shared, key)
	}
	p.settle()
	return nil
}

func (p *passwords) release() (err error) {
	for _, key := range p.shared {
		_, failed := pool.Delete(key)
		err = errors.Join(err, failed)
	}
	p.shared = nil
	return err
}

// Destruct implements caddy.Destructor: no configuration has the account any more.
func (*account) Destruct() error { return nil }

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

// verify checks whether the password is that of the user. For a user that does not exist it computes the hash of one that
// does, so that the time taken tells nothing.
func (p *passwords) verify(ctx context.Context, source netip.Addr, user, password string) enforce.PasswordCheck {
	a, known := p.accounts[user]
	if !known {
		if len(p.decoys) == 0 {
			return enforce.PasswordWrong
		}
		a = p.decoy(user)
	}
	d := p.hashes.digest(user, a.hash, password)
	right := func() bool { return known && a.remembers(d) }
	if right() {
		return enforce.PasswordRight
	}
	return p.hashes.check(ctx, source, user, d, right, func() bool {
		fits, err := a.comparer.Compare(a.hash, []byte(password))
		if err != nil || !fits || !known {
			return false
		}
		a.verified.Store(&d)
		return true
	})
}

// decoy picks the same account for the same name, so that repeating it tells nothing either.
func (p *passwords) decoy(user string) *account {
	sum := p.hashes.digest(user, nil, "")
	return p.decoys[binary.BigEndian.Uint64(sum[:8])%uint64(len(p.decoys))]
}

func (a *account) remembers(d digest) bool {
	verified := a.verified.Load()
	return verified != nil && hmac.Equal(verified[:], d[:])
}
