package sealer

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/mod/sumdb/note"
)

// loadKey reads a private key (PEM, PKCS #8). If the file is missing, it makes one that only its
// owner may read.
func loadKey(file string) (ed25519.PrivateKey, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = makeKey(file)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the key: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, fmt.Errorf("reading the key %s: it is not PEM with PKCS #8", file)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading the key %s: %w", file, err)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("reading the key %s: it is a %T: want Ed25519", file, parsed)
	}
	return key, nil
}

func makeKey(file string) ([]byte, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, err
	}
	return text, replaceFile(file, text)
}

// signer signs under the name of its verifier. It implements [note.Signer].
type signer struct {
	note.Verifier
	key ed25519.PrivateKey
}

// Sign implements [note.Signer].
func (s signer) Sign(text []byte) ([]byte, error) { return ed25519.Sign(s.key, text), nil }

// signerOf returns a signer for a key and a name, and its verifier key.
func signerOf(name string, key ed25519.PrivateKey) (s signer, vkey string, err error) {
	s.key = key
	vkey, err = note.NewEd25519VerifierKey(name, key.Public().(ed25519.PublicKey)) //nolint:forcetypeassert // as documented
	if err == nil {
		s.Verifier, err = note.NewVerifier(vkey)
	}
	if err != nil {
		return s, "", fmt.Errorf("signing as %s: %w", name, err)
	}
	return s, vkey, nil
}
