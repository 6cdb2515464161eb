package evidence

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Checkpoint is a signed statement: the tree of the log LogID had Size leaves and this Root.
type Checkpoint struct {
	LogID string
	Size  int64
	Root  tlog.Hash
	// Note is the signed note (C2SP signed-note v1.0.0) with all its signatures.
	Note []byte
}

// CheckpointText is the text of a checkpoint (C2SP tlog-checkpoint v1.0.0), without extensions.
func CheckpointText(logID string, size int64, root tlog.Hash) string {
	return fmt.Sprintf("%s\n%d\n%s\n", logID, size, root)
}

// ParseCheckpoint reads a signed checkpoint. A verifier with the log ID as its name must have
// signed it; signatures that no verifier knows are ignored. If verifiers is nil, no signature is
// checked, and the result is only a claim.
func ParseCheckpoint(text []byte, verifiers note.Verifiers) (c Checkpoint, err error) {
	n, err := note.Open(text, cmp.Or(verifiers, note.VerifierList()))
	unknown, ok := errors.AsType[*note.UnverifiedNoteError](err)
	switch {
	case ok && verifiers == nil:
		n, err = unknown.Note, nil
	case ok && len(unknown.Note.UnverifiedSigs) > 0:
		s := unknown.Note.UnverifiedSigs[0]
		err = fmt.Errorf("%w: it wants the key %s+%08x", err, s.Name, s.Hash)
	}
	if err != nil {
		return Checkpoint{}, fmt.Errorf("reading a checkpoint: %w", err)
	}
	if c, err = ParseCheckpointText(n.Text); err != nil {
		return Checkpoint{}, err
	}
	if verifiers != nil && !slices.ContainsFunc(n.Sigs, func(s note.Signature) bool { return s.Name == c.LogID }) {
		return Checkpoint{}, fmt.Errorf("reading a checkpoint: %s has not signed it", c.LogID)
	}
	c.Note = bytes.Clone(text)
	return c, nil
}

// ParseCheckpointText reads the text of a checkpoint without its signatures, so it checks none.
func ParseCheckpointText(text string) (c Checkpoint, err error) {
	var root string
	if _, err = fmt.Sscanf(text, "%s\n%d\n%s\n", &c.LogID, &c.Size, &root); err == nil {
		c.Root, err = tlog.ParseHash(root)
	}
	if err != nil || c.Size < 0 || CheckpointText(c.LogID, c.Size, c.Root) != text {
		return Checkpoint{}, fmt.Errorf("%.200q is not a checkpoint: want log ID, size and root", text)
	}
	if _, err := ParseLogID(c.LogID); err != nil {
		return Checkpoint{}, fmt.Errorf("reading a checkpoint: %w", err)
	}
	return c, nil
}

// CheckpointEnd is the line after each checkpoint in a file of checkpoints.
const CheckpointEnd = "--\n"

// maxNote bounds a checkpoint with its signatures, in bytes.
const maxNote = 64 << 10

// ErrCut means that the last checkpoint of a file has no end: the gateway stopped while it wrote
// it.
var ErrCut = errors.New("the last checkpoint is cut off")

// ReadCheckpoints reads a file of checkpoints, in order. An error names the line at which the bad
// checkpoint begins. Reading continues with the next one, unless the file itself cannot be read.
func ReadCheckpoints(r io.Reader, verifiers note.Verifiers) iter.Seq2[Checkpoint, error] {
	return func(yield func(Checkpoint, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, maxNote)
		var text []byte
		first, number := 1, 0
		for lines.Scan() {
			number++
			if line := lines.Text() + "\n"; line != CheckpointEnd {
				text = append(text[:min(len(text), maxNote)], line...)
				continue
			}
			if len(text) == 0 { // an end by itself
				continue
			}
			c, err := ParseCheckpoint(text, verifiers)
			if err != nil {
				err = fmt.Errorf("line %d: %w", first, err)
			}
			if !yield(c, err) {
				return
			}
			text, first = text[:0], number+1
		}
		switch err := lines.Err(); {
		case err != nil:
			yield(Checkpoint{}, fmt.Errorf("reading checkpoints after line %d: %w", number, err))
		case len(text) > 0:
			yield(Checkpoint{}, fmt.Errorf("line %d: %w", first, ErrCut))
		}
	}
}

// MaxPeerNote bounds a checkpoint that gateways exchange, in bytes.
const MaxPeerNote = 2 << 10

// StripCosignatures reduces a signed note to its first signature, which is the log's own:
// cosignatures may be long.
func StripCosignatures(text string) string {
	text, signatures, _ := strings.Cut(text, "\n\n")
	own, _, _ := strings.Cut(signatures, "\n")
	return text + "\n\n" + own + "\n"
}

// ReadClaim reads a signed note of at most [MaxPeerNote] bytes as a checkpoint. It checks no
// signature.
func ReadClaim(text string) (Checkpoint, error) {
	if len(text) > MaxPeerNote {
		return Checkpoint{}, fmt.Errorf("a checkpoint of %d bytes: want at most %d", len(text), MaxPeerNote)
	}
	return ParseCheckpoint([]byte(text), nil)
}

// LogID names one tree of a log. It is the first line of the tree's checkpoints, which C2SP
// tlog-checkpoint calls the origin, and the name of the key that signs them. The zero value names
// nothing.
type LogID struct {
	Gateway string
	Log     string
	// Generation counts from 1. A new key or a lost state begins the next one.
	Generation int
}

// String returns gateway/log/generation.
func (i LogID) String() string {
	return i.Gateway + "/" + i.Log + "/" + strconv.Itoa(i.Generation)
}

// WithoutGeneration returns gateway/log/ of the text of a log ID.
func WithoutGeneration(logID string) string { return strings.TrimRight(logID, "0123456789") }

// maxGeneration makes sure that the next generation fits an int, whatever a line claims.
const maxGeneration = 1e9

// ParseLogID reads what String writes. The gateway may contain slashes. No part contains a space, a
// quote, a backslash or a plus, which separates the parts of a verifier key.
func ParseLogID(s string) (LogID, error) {
	rest, generation := path.Split(s)
	gateway, log := path.Split(strings.TrimSuffix(rest, "/"))
	n, err := strconv.Atoi(generation)
	id := LogID{strings.TrimSuffix(gateway, "/"), log, n}
	if err != nil || n < 1 || n > maxGeneration || id.String() != s {
		return LogID{}, fmt.Errorf("%.100q is not a log ID: want gateway/log/generation", s)
	}
	return id, id.Check()
}

// Check returns an error if a name is invalid.
func (i LogID) Check() error {
	if !isName(i.Gateway) {
		return fmt.Errorf("name of the gateway %.100q: want visible ASCII characters without plus, quote and backslash", i.Gateway)
	}
	if !isName(i.Log) || strings.ContainsAny(i.Log, "/:*?<>|") || strings.HasPrefix(i.Log, ".") {
		return fmt.Errorf("name of the log %.100q: want a word that can name a folder", i.Log)
	}
	return nil
}

func isName(s string) bool {
	unfit := func(c rune) bool { return c <= ' ' || c > '~' || c == '+' || c == '"' || c == '\\' }
	return s != "" && len(s) <= 100 && !strings.ContainsFunc(s, unfit)
}
