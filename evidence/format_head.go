package evidence

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Head is a signed checkpoint: it says that the tree of Identity had Size leaves and this Root.
type Head struct {
	Identity string
	Size     int64
	Root     tlog.Hash
	// Note is the signed note (C2SP signed-note v1.0.0) with all its signatures.
	Note []byte
}

// CheckpointText is the text of a checkpoint (C2SP tlog-checkpoint v1.0.0), without extensions.
func CheckpointText(identity string, size int64, root tlog.Hash) string {
	return fmt.Sprintf("%s\n%d\n%s\n", identity, size, root)
}

// ParseHead reads a signed checkpoint. One of the verifiers has the identity as its name and has
// signed it. Signatures that no verifier knows are left alone. If verifiers is nil, no signature is
// checked: it says what the checkpoint claims.
func ParseHead(text []byte, verifiers note.Verifiers) (h Head, err error) {
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
		return Head{}, fmt.Errorf("reading a checkpoint: %w", err)
	}
	if h, err = ParseCheckpoint(n.Text); err != nil {
		return Head{}, err
	}
	if verifiers != nil && !slices.ContainsFunc(n.Sigs, func(s note.Signature) bool { return s.Name == h.Identity }) {
		return Head{}, fmt.Errorf("reading a checkpoint: %s has not signed it", h.Identity)
	}
	h.Note = bytes.Clone(text)
	return h, nil
}

// ParseCheckpoint reads the text of a checkpoint, which nothing vouches for.
func ParseCheckpoint(text string) (h Head, err error) {
	var root string
	if _, err = fmt.Sscanf(text, "%s\n%d\n%s\n", &h.Identity, &h.Size, &root); err == nil {
		h.Root, err = tlog.ParseHash(root)
	}
	if err != nil || h.Size < 0 || CheckpointText(h.Identity, h.Size, h.Root) != text {
		return Head{}, fmt.Errorf("%.200q is no checkpoint: want identity, size and root", text)
	}
	if _, err := ParseIdentity(h.Identity); err != nil {
		return Head{}, fmt.Errorf("reading a checkpoint: %w", err)
	}
	return h, nil
}

// Terms are what a log is written under, as lines of the writer say.
type Terms struct {
	// Files is how many files are kept besides the newest, and Days for how long; 0 for any. SizeMB is
	// that of a file.
	Files  int `json:"roll_keep"`
	Days   int `json:"roll_keep_days"`
	SizeMB int `json:"roll_size_mb"`
	// A checkpoint is signed after Every seconds or after Lines.
	Every float64 `json:"every"`
	Lines int     `json:"lines"`
}

// Crash is how many lines a crash leaves without a checkpoint, at most. docs/evidence.md says why.
func (t Terms) Crash() int64 { return 8 * int64(max(t.Lines, 1000)) }

// Logger is the logger of the lines that the writer adds to a log.
const Logger = "crawlgate.evidence"

// Said is a line of the writer. docs/evidence.md says what its members mean, and which a line has.
type Said struct {
	Level    string     `json:"level"`
	TS       float64    `json:"ts"`
	Logger   string     `json:"logger"`
	Msg      string     `json:"msg"` // right behind Logger: see the start of the writer
	At       string     `json:"at,omitempty"`
	Terms    *Terms     `json:"terms,omitempty"`
	Late     *LateLines `json:"late,omitempty"`
	Reason   string     `json:"reason,omitempty"`
	Previous string     `json:"previous,omitempty"`
	PeerLog  string     `json:"peer_log,omitempty"`
	Size     int64      `json:"size,omitempty"`
	Root     tlog.Hash  `json:"root,omitzero"`
	Note     string     `json:"note,omitempty"`
	Lines    int64      `json:"lines,omitempty"`
	From     string     `json:"from,omitempty"`
	To       string     `json:"to,omitempty"`
	// Robots is in a line that only looks like the writer's.
	Robots json.RawMessage `json:"robots,omitempty"`
}

// LateLines are sealed by a start.
type LateLines struct {
	From int64  `json:"from"`
	To   int64  `json:"to"`
	Torn int    `json:"torn"`
	File string `json:"file"` // which had the first of them
}

// Parts of the reason of a generation that the writer gives if the log is not as it was signed, or
// if more is unsigned than a crash leaves. The audit knows such a generation by them.
const (
	ReasonSigned   = "that were signed"
	ReasonUnsigned = "have no checkpoint"
)

// HeadEnd is the line behind each checkpoint of a file of them.
const HeadEnd = "--\n"

// maxNote bounds a checkpoint with its signatures, in bytes.
const maxNote = 64 << 10

// ErrCut is a last checkpoint without its end: the writer was stopped within it.
var ErrCut = errors.New("the last checkpoint is cut off")

// ReadHeads reads a file of checkpoints, in order. An error names the line at which its checkpoint
// begins; those behind it are read on, unless the file itself cannot be.
func ReadHeads(r io.Reader, verifiers note.Verifiers) iter.Seq2[Head, error] {
	return func(yield func(Head, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, maxNote)
		var text []byte
		first, number := 1, 0
		for lines.Scan() {
			number++
			if line := lines.Text() + "\n"; line != HeadEnd {
				text = append(text[:min(len(text), maxNote)], line...)
				continue
			}
			if len(text) == 0 { // an end by itself
				continue
			}
			h, err := ParseHead(text, verifiers)
			if err != nil {
				err = fmt.Errorf("line %d: %w", first, err)
			}
			if !yield(h, err) {
				return
			}
			text, first = text[:0], number+1
		}
		switch err := lines.Err(); {
		case err != nil:
			yield(Head{}, fmt.Errorf("reading checkpoints after line %d: %w", number, err))
		case len(text) > 0:
			yield(Head{}, fmt.Errorf("line %d: %w", first, ErrCut))
		}
	}
}

// MaxPeerNote bounds a checkpoint that gateways tell each other, in bytes.
const MaxPeerNote = 2 << 10

// Bare is a signed note with its first signature alone, which is the log's own: cosignatures may be
// long.
func Bare(text string) string {
	text, signatures, _ := strings.Cut(text, "\n\n")
	own, _, _ := strings.Cut(signatures, "\n")
	return text + "\n\n" + own + "\n"
}

// ReadClaim reads a signed note of at most [MaxPeerNote] bytes as a checkpoint, unchecked.
func ReadClaim(text string) (Head, error) {
	if len(text) > MaxPeerNote {
		return Head{}, fmt.Errorf("a checkpoint of %d bytes: want at most %d", len(text), MaxPeerNote)
	}
	return ParseHead([]byte(text), nil)
}
