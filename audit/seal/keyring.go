package seal

import (
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/crawlgate/crawlgate/evidence"
)

// keyring finds the key of a log: one that the caller has given, for any log, or one beside the
// log. It implements [note.Verifiers].
type keyring struct {
	given  [][]byte
	beside map[string][]byte // by identity
}

// algEd25519 begins the public key in the text of a verifier key.
const algEd25519 = 1

// give takes a key that was kept elsewhere.
func (k *keyring) give(text string) error {
	_, key, err := parseKey(strings.TrimSpace(text))
	if err != nil {
		return err
	}
	k.given = append(k.given, key)
	return nil
}

func parseKey(text string) (name string, key []byte, err error) {
	v, err := note.NewVerifier(text)
	if err != nil {
		return "", nil, fmt.Errorf("key %.100q: %w", text, err)
	}
	parts := strings.SplitN(text, "+", 3)
	key, err = base64.StdEncoding.DecodeString(parts[2])
	if err != nil || len(key) == 0 || key[0] != algEd25519 {
		return "", nil, fmt.Errorf("key %.100q: want one of Ed25519", text)
	}
	return v.Name(), key[1:], nil
}

// lieBeside takes the key beside a log, and returns the identity that it is for. It is believed
// only where none is given.
func (k *keyring) lieBeside(text string) (identity string, err error) {
	name, key, err := parseKey(text)
	if err != nil {
		return "", err
	}
	if _, err := evidence.ParseIdentity(name); err != nil {
		return "", err
	}
	k.beside[name] = key
	return name, nil
}

// beneath gives the key and the identity of the folder of a generation: by the key in it or, if
// that is gone, a key that is given and the name in a checkpoint, whose signatures are checked
// later.
func (k *keyring) beneath(folder string) (key, identity string, err error) {
	text, err := os.ReadFile(filepath.Join(folder, "vkey"))
	if err == nil {
		key = strings.TrimSpace(string(text))
		identity, err = k.lieBeside(key)
		return key, identity, err
	}
	for _, name := range []string{"checkpoint", "heads"} {
		if text, err2 := os.ReadFile(filepath.Join(folder, name)); err2 == nil && len(k.given) > 0 {
			identity, _, _ = strings.Cut(string(text), "\n")
			if _, err2 := evidence.ParseIdentity(identity); err2 == nil {
				key, err = note.NewEd25519VerifierKey(identity, k.given[0])
				return key, identity, err
			}
		}
	}
	return "", "", err
}

// Verifier implements note.Verifiers.
func (k *keyring) Verifier(name string, hash uint32) (note.Verifier, error) {
	for _, key := range k.of(name) {
		text, err := note.NewEd25519VerifierKey(name, key)
		v, err2 := note.NewVerifier(text)
		if errors.Join(err, err2) == nil && v.KeyHash() == hash {
			return v, nil
		}
	}
	return nil, &note.UnknownVerifierError{Name: name, KeyHash: hash}
}

// of gives the keys that may have signed for a log. For a generation that has no folder these are
// the keys of the others.
func (k *keyring) of(name string) (keys [][]byte) {
	id, err := evidence.ParseIdentity(name)
	switch {
	case err != nil:
		return nil
	case len(k.given) > 0:
		return k.given
	case k.beside[name] != nil:
		return [][]byte{k.beside[name]}
	}
	for other, key := range k.beside {
		if o, err := evidence.ParseIdentity(other); err == nil && o.Gateway == id.Gateway && o.Log == id.Log {
			keys = append(keys, key)
		}
	}
	return keys
}
