package sealer

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/crawlgate/crawlgate/evidence"
)

// State is what the folder of a generation says. It can be read while the log is written.
type State struct {
	VKey       string
	Checkpoint evidence.Checkpoint // the newest, with its cosignatures

	folder string
}

// ReadState reads the state of a log from a state folder: of a generation, or of the newest if it
// is 0.
func ReadState(folder, log string, generation int) (s State, err error) {
	dir := filepath.Join(folder, log)
	if generation == 0 {
		if generation, err = newestGeneration(dir); err != nil {
			return s, fmt.Errorf("reading the state: %w", err)
		}
	}
	s.folder = filepath.Join(dir, strconv.Itoa(generation))
	vkey, err := os.ReadFile(filepath.Join(s.folder, vkeyFile))
	if err != nil {
		return s, fmt.Errorf("reading the state: %w", err)
	}
	s.VKey = strings.TrimSpace(string(vkey))
	verifier, err := note.NewVerifier(s.VKey)
	if err != nil {
		return s, fmt.Errorf("reading the key of %s: %w", s.folder, err)
	}
	if s.Checkpoint, _, err = newestCheckpoint(filepath.Join(s.folder, checkpointsFile), evidence.WithoutGeneration(verifier.Name()), note.VerifierList(verifier)); err != nil {
		return s, err
	}
	if s.Checkpoint.Size == 0 {
		return s, fmt.Errorf("there is no checkpoint in %s", s.folder)
	}
	return s, nil
}

// Proof shows that a line is in the tree of a checkpoint (RFC 6962 section 2.1.1).
type Proof struct {
	Seq        int64       `json:"seq"`
	Line       string      `json:"line"`
	Size       int64       `json:"size"` // of the tree
	Hashes     []tlog.Hash `json:"proof"`
	Checkpoint string      `json:"checkpoint"`
	VKey       string      `json:"vkey"`
}

// Prove proves that a line is in the newest checkpoint. It searches the files of the log for it.
func (s State) Prove(seq int64, files []string) (Proof, error) {
	if seq < 0 || seq >= s.Checkpoint.Size {
		return Proof{}, fmt.Errorf("line %d is not in the newest checkpoint: lines are numbered from 0, the last one in it is %d", seq, s.Checkpoint.Size-1)
	}
	reader := tlog.TileHashReader(tlog.Tree{N: s.Checkpoint.Size, Hash: s.Checkpoint.Root}, evidence.Tiles(s.folder))
	leaf, err := reader.ReadHashes([]int64{tlog.StoredHashIndex(0, seq)})
	if err != nil {
		return Proof{}, fmt.Errorf("proving line %d by the hashes in %s: %w", seq, s.folder, err)
	}
	hashes, err := tlog.ProveRecord(s.Checkpoint.Size, seq, reader)
	if err != nil {
		return Proof{}, fmt.Errorf("proving line %d: %w", seq, err)
	}
	line, err := findLine(leaf[0], files)
	if err != nil {
		return Proof{}, fmt.Errorf("looking for line %d: %w", seq, err)
	}
	if !utf8.ValidString(line) {
		return Proof{}, fmt.Errorf("line %d is not UTF-8, and a proof in JSON would change it", seq)
	}
	return Proof{seq, line, s.Checkpoint.Size, hashes, string(s.Checkpoint.Note), s.VKey}, nil
}

// findLine looks for the line of a leaf, in the last file first.
func findLine(leaf tlog.Hash, files []string) (string, error) {
	for _, name := range slices.Backward(files) {
		for line, err := range linesOf(name) {
			if line = bytes.TrimSuffix(line, []byte("\n")); err != nil || tlog.RecordHash(line) == leaf {
				return string(line), err
			}
		}
	}
	return "", fmt.Errorf("no line of %d files has its hash", len(files))
}
