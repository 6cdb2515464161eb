// Package webbotauth signs requests so that a site can tell who sent them: HTTP message signatures
// (RFC 9421), in the form that draft-ietf-webbotauth-httpsig-protocol-01 defines for crawlers. It
// also makes the directory in which a site finds the keys.
//
// A signature proves a name. It says nothing about what the sender may do.
package webbotauth

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/crawlgate/crawlgate/internal/repeated"
)

// maxKeys bounds the keys of one agent: a directory with more could be refused (section 6 of the
// draft).
const maxKeys = 16

// SigningKey is an Ed25519 key of one agent. The zero SigningKey signs nothing.
type SigningKey struct {
	// ID is the key's thumbprint (RFC 8037 appendix A.3), by which a site finds it in the directory.
	ID string
	// NotBefore is when the key begins to sign, and Expires when it ends. Zero means no limit.
	NotBefore, Expires time.Time

	private ed25519.PrivateKey
}

// String returns the ID, so that printing a key does not show its secret.
func (k SigningKey) String() string { return k.ID }

// GoString is the same as String.
func (k SigningKey) GoString() string { return k.ID }

// Generate returns a new key that signs between two times, with a precision of seconds. Zero means
// no limit.
func Generate(notBefore, expires time.Time) (SigningKey, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return SigningKey{}, fmt.Errorf("making a key: %w", err)
	}
	return newKey(private, notBefore, expires), nil
}

func newKey(private ed25519.PrivateKey, notBefore, expires time.Time) SigningKey {
	// RFC 7638 section 3: the required members in the order of their names.
	public, _ := private.Public().(ed25519.PublicKey)
	print := sha256.Sum256([]byte(`{"crv":"Ed25519","kty":"OKP","x":"` + encode(public) + `"}`))
	return SigningKey{ID: encode(print[:]), NotBefore: notBefore, Expires: expires, private: private}
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// Keys are the keys of one agent, in the order in which they begin to sign.
type Keys []SigningKey

// At returns the key that signs at a time. If there are several, it is the one that began last. It
// reports false if no key signs.
func (k Keys) At(now time.Time) (SigningKey, bool) {
	for _, key := range slices.Backward(k) {
		if !now.Before(key.NotBefore) && !key.ended(now) {
			return key, true
		}
	}
	return SigningKey{}, false
}

// Published returns the keys that the directory shows at a time: all that have not ended, including
// keys that do not sign yet. So a site knows a key before its first use.
func (k Keys) Published(now time.Time) Keys {
	return slices.DeleteFunc(slices.Clone(k), func(key SigningKey) bool { return key.ended(now) })
}

// Rotate returns the keys with a new last one. The new key begins to sign only after a delay, so
// that sites can find it in the directory first. The earlier keys end after the same delay again,
// and ended keys are left out. A key without predecessors signs at once. Rotate returns an error if
// the last key has not begun to sign, or if no key would sign until the new one does.
func (k Keys) Rotate(now time.Time, after time.Duration) (Keys, error) {
	keys := k.Published(now)
	if len(keys) == 0 {
		key, err := Generate(time.Time{}, time.Time{})
		return Keys{key}, err
	}
	if last := keys[len(keys)-1]; now.Before(last.NotBefore) {
		return nil, fmt.Errorf("a rotation is under way: key %s begins to sign at %s; rotate again after that", last, last.NotBefore.UTC().Format(time.RFC3339))
	}
	begin := now.Add(after).Truncate(time.Second)
	for i, key := range keys {
		if end := begin.Add(after + time.Second); key.Expires.IsZero() || key.Expires.After(end) {
			keys[i].Expires = end
		}
	}
	if _, ok := keys.At(begin.Add(-time.Second)); !ok {
		return nil, fmt.Errorf("no key would sign until the new one does, at %s: let it begin earlier", begin.UTC().Format(time.RFC3339))
	}
	key, err := Generate(begin, time.Time{})
	return append(keys, key), err
}

// State returns the state of a key at a time: "signs", "published" (but not signing), or "ended".
func (k Keys) State(key SigningKey, now time.Time) string {
	signs, _ := k.At(now)
	switch {
	case key.ended(now):
		return "ended"
	case key.ID == signs.ID:
		return "signs"
	}
	return "published"
}

func (k SigningKey) ended(now time.Time) bool { return !k.Expires.IsZero() && !now.Before(k.Expires) }

// jwk is a JSON Web Key (RFC 7517, RFC 8037). Times are seconds since 1970.
type jwk struct {
	Type    string `json:"kty"`
	Curve   string `json:"crv"`
	ID      string `json:"kid,omitempty"`
	X       string `json:"x"`
	D       string `json:"d,omitempty"`
	Use     string `json:"use,omitempty"`
	From    int64  `json:"nbf,omitempty"`
	Expires int64  `json:"exp,omitempty"`
}

type jwkSet struct {
	Keys []jwk `json:"keys"`
}

// testKey is the thumbprint of the key in RFC 9421 appendix B.1.4, whose secret is public.
const testKey = "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"

// ParseKeys reads a JWK Set with private keys, or a single JWK. It returns an error with the
// position of a key that cannot sign, or that is the example key of the RFC.
func ParseKeys(data []byte) (Keys, error) {
	list, err := parseSet(data)
	if err != nil {
		return nil, fmt.Errorf("reading keys: %w", err)
	}
	var keys Keys
	for i, j := range list {
		k, err := j.key()
		if err == nil && slices.ContainsFunc(keys, func(other SigningKey) bool { return other.ID == k.ID }) {
			err = errors.New("it is there twice")
		}
		if err != nil {
			return nil, fmt.Errorf("reading keys: key %d: %w", i+1, err)
		}
		keys = append(keys, k)
	}
	slices.SortStableFunc(keys, func(a, b SigningKey) int { return a.NotBefore.Compare(b.NotBefore) })
	return keys, nil
}

func parseSet(data []byte) ([]jwk, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	var file struct {
		jwkSet
		jwk
	}
	if err := decoder.Decode(&file); err != nil {
		// The error could quote the file.
		return nil, fmt.Errorf("no JSON Web Key at byte %d", decoder.InputOffset())
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("something follows the JSON at byte %d", decoder.InputOffset())
	}
	if err := repeated.Field(data); err != nil {
		return nil, err
	}
	list := file.Keys
	if list == nil && file.Type != "" {
		list = []jwk{file.jwk}
	}
	switch {
	case len(list) == 0:
		return nil, errors.New("it has no keys")
	case len(list) > maxKeys:
		return nil, fmt.Errorf("it has %d keys, more than %d", len(list), maxKeys)
	}
	return list, nil
}

func (j jwk) key() (SigningKey, error) {
	if j.Type != "OKP" || j.Curve != "Ed25519" {
		return SigningKey{}, errors.New("it is not of kty OKP and crv Ed25519")
	}
	if j.D == "" {
		return SigningKey{}, errors.New("it has no d: a public key cannot sign")
	}
	seed, err := base64.RawURLEncoding.DecodeString(j.D)
	if err != nil || len(seed) != ed25519.SeedSize {
		return SigningKey{}, fmt.Errorf("d is not base64url of %d bytes", ed25519.SeedSize)
	}
	k := newKey(ed25519.NewKeyFromSeed(seed), seconds(j.From), seconds(j.Expires))
	switch {
	case k.ID == testKey:
		return SigningKey{}, errors.New("it is the example of RFC 9421, whose secret is public")
	case j.X != "" && j.X != k.public().X:
		return SigningKey{}, errors.New("x does not belong to d")
	case j.ID != "" && j.ID != k.ID:
		return SigningKey{}, fmt.Errorf("kid is not the thumbprint of the key, %s", k.ID)
	case !k.Expires.IsZero() && !k.NotBefore.Before(k.Expires):
		return SigningKey{}, errors.New("exp is not after nbf")
	}
	return k, nil
}

func seconds(unix int64) time.Time {
	if unix == 0 {
		return time.Time{}
	}
	return time.Unix(unix, 0)
}

// public returns the key in the form of the directory.
func (k SigningKey) public() jwk {
	public, _ := k.private.Public().(ed25519.PublicKey)
	j := jwk{Type: "OKP", Curve: "Ed25519", ID: k.ID, X: encode(public), Use: "sig"}
	if !k.NotBefore.IsZero() {
		j.From = k.NotBefore.Unix()
	}
	if !k.Expires.IsZero() {
		j.Expires = k.Expires.Unix()
	}
	return j
}

// Private returns the JWK Set that [ParseKeys] reads. Only the gateway may read it.
func (k Keys) Private() []byte {
	set := jwkSet{Keys: []jwk{}}
	for _, key := range k {
		j := key.public()
		j.D = encode(key.private.Seed())
		set.Keys = append(set.Keys, j)
	}
	text, _ := json.MarshalIndent(set, "", "  ") // strings and numbers always marshal
	return append(text, '\n')
}
