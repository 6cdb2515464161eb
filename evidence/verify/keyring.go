package verify

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

// keyring finds the key of a log: one that the caller gave, which is valid for any log, or the one
// in the log's folder of evidence, which is trusted only if the caller gave none. It implements
// [note.Verifiers].
type keyring struct {
	given [][]byte
	local map[string][]byte // by identity
}

// algEd25519 is the first byte of the public key in a verifier key.
const algEd25519 = 1

func parseKey(text string) (name string, key []byte, err error) {
	text = strings.TrimSpace(text)
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

// ofFolder returns the key and the log ID of a generation's folder. If the folder has no key, it
// uses a given key and the log ID in a checkpoint, whose signature is checked later.
func (k *keyring) ofFolder(folder string) (key, identity string, err error) {
	text, err := os.ReadFile(filepath.Join(folder, "vkey"))
	if err == nil {
		var public []byte
		if identity, public, err = parseKey(string(text)); err == nil {
			_, err = evidence.ParseLogID(identity)
		}
		k.local[identity] = public
		return strings.TrimSpace(string(text)), identity, err
	}
	for _, name := range []string{"checkpoint", "heads"} {
		if text, err2 := os.ReadFile(filepath.Join(folder, name)); err2 == nil && len(k.given) > 0 {
			identity, _, _ = strings.Cut(string(text), "\n")
			if _, err2 := evidence.ParseLogID(identity); err2 == nil {
				key, err = note.NewEd25519VerifierKey(identity, k.given[0])
				return key, identity, err
			}
		}
	}
	return "", "", err
}

// Verifier implements note.Verifiers. A generation without a folder may have been signed by the
// keys of the others.
func (k *keyring) Verifier(name string, hash uint32) (note.Verifier, error) {
	keys := k.given
	if own := k.local[name]; len(keys) == 0 && own != nil {
		keys = [][]byte{own}
	} else if len(keys) == 0 {
		for other, key := range k.local {
			if evidence.WithoutGeneration(other) == evidence.WithoutGeneration(name) {
				keys = append(keys, key)
			}
		}
	}
	for _, key := range keys {
		text, err := note.NewEd25519VerifierKey(name, key)
		v, err2 := note.NewVerifier(text)
		if errors.Join(err, err2) == nil && v.KeyHash() == hash {
			return v, nil
		}
	}
	return nil, &note.UnknownVerifierError{Name: name, KeyHash: hash}
}
