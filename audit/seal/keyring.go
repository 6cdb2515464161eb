package seal

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/crawlgate/crawlgate/evidence"
)

// keyring finds the key of a log: one that the caller has given, for any generation, or the one
// beside the log. It implements [note.Verifiers].
type keyring struct {
	given  [][]byte
	beside map[string]note.Verifier
}

// algEd25519 begins the public key in the text of a verifier key.
const algEd25519 = 1

// give takes a key that was kept elsewhere.
func (k *keyring) give(text string) error {
	text = strings.TrimSpace(text)
	_, err := note.NewVerifier(text)
	if err != nil {
		return fmt.Errorf("key %.100q: %w", text, err)
	}
	parts := strings.SplitN(text, "+", 3)
	key, err := base64.StdEncoding.DecodeString(parts[2])
	if err != nil || len(key) == 0 || key[0] != algEd25519 {
		return fmt.Errorf("key %.100q: want one of Ed25519", text)
	}
	k.given = append(k.given, key[1:])
	return nil
}

// lieBeside takes the key beside a log, and returns the identity that it is for. It is believed
// only where none is given.
func (k *keyring) lieBeside(text string) (identity string, err error) {
	v, err := note.NewVerifier(text)
	if err != nil {
		return "", fmt.Errorf("verifier key: %w", err)
	}
	if _, err := evidence.ParseIdentity(v.Name()); err != nil {
		return "", err
	}
	k.beside[v.Name()] = v
	return v.Name(), nil
}

// Verifier implements note.Verifiers.
func (k *keyring) Verifier(name string, hash uint32) (note.Verifier, error) {
	if len(k.given) == 0 {
		if v := k.beside[name]; v != nil && v.KeyHash() == hash {
			return v, nil
		}
		return nil, &note.UnknownVerifierError{Name: name, KeyHash: hash}
	}
	if _, err := evidence.ParseIdentity(name); err == nil {
		for _, key := range k.given {
			text, err := note.NewEd25519VerifierKey(name, key)
			v, err2 := note.NewVerifier(text)
			if errors.Join(err, err2) == nil && v.KeyHash() == hash {
				return v, nil
			}
		}
	}
	return nil, &note.UnknownVerifierError{Name: name, KeyHash: hash}
}
