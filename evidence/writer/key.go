package writer

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// algEd25519 is the type of a key of a note (C2SP signed-note v1.0.0).
const algEd25519 = "\x01"

// loadKey reads a private key: that of a note's signer, or PEM with PKCS #8. Where the file is
// missing it makes one, in PEM, that only its owner may read.
func loadKey(file string) (ed25519.PrivateKey, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = makeKey(file)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the key: %w", err)
	}
	key, err := parseKey(string(text))
	if err != nil {
		return nil, fmt.Errorf("reading the key %s: %w", file, err)
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

func parseKey(text string) (ed25519.PrivateKey, error) {
	if block, _ := pem.Decode([]byte(text)); block != nil {
		parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return nil, err
		}
		key, ok := parsed.(ed25519.PrivateKey)
		if !ok {
			return nil, fmt.Errorf("it is a %T: want Ed25519", parsed)
		}
		return key, nil
	}
	text = strings.TrimSpace(text)
	parts := strings.SplitN(text, "+", 5) // PRIVATE+KEY+name+hash+data; the data may hold a plus
	if _, err := note.NewSigner(text); err != nil || len(parts) != 5 {
		return nil, errors.New("it is neither PEM with PKCS #8 nor the key of a note's signer")
	}
	data, err := base64.StdEncoding.DecodeString(parts[4])
	if err != nil {
		return nil, err
	}
	return ed25519.NewKeyFromSeed(data[len(algEd25519):]), nil
}

// signerOf makes a key sign under a name, and gives the verifier's key.
func signerOf(name string, key ed25519.PrivateKey) (signer note.Signer, vkey string, err error) {
	public, ok := key.Public().(ed25519.PublicKey)
	if !ok {
		return nil, "", errors.New("the key has no public part")
	}
	hash := sha256.Sum256([]byte(name + "\n" + algEd25519 + string(public)))
	data := base64.StdEncoding.EncodeToString(append([]byte(algEd25519), key.Seed()...))
	signer, err = note.NewSigner(fmt.Sprintf("PRIVATE+KEY+%s+%x+%s", name, hash[:4], data))
	if err != nil {
		return nil, "", fmt.Errorf("signing as %s: %w", name, err)
	}
	vkey, err = note.NewEd25519VerifierKey(name, public)
	return signer, vkey, err
}
