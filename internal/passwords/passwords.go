package passwords

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"strings"

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
	d := p.hashes.digest(user, a.hash, password)
	if known && p.hashes.remembers(d) {
		return enforce.PasswordRight
	}
	return p.hashes.check(ctx, source, user, d, func() bool {
		fits, err := a.comparer.Compare(a.hash, []byte(password))
		return err == nil && fits && known
	})
}

// decoy picks the same account for the same name, so that repeating it tells nothing either.
func (p *Checker) decoy(user string) account {
	sum := p.hashes.digest(user, nil, "")
	return p.accounts[p.users[binary.BigEndian.Uint64(sum[:8])%uint64(len(p.users))]]
}
