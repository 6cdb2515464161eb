package sealer

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/crawlgate/crawlgate/evidence"
)

// load resumes the newest generation or begins another one. Then the log is open, and a checkpoint
// covers all of it.
func (l *Log) load() error {
	newest, err := newestGeneration(l.dir)
	if err != nil {
		return fmt.Errorf("reading the state: %w", err)
	}
	copied, latest, err := newestCheckpoint(l.config.Checkpoints, l.config.Gateway+"/"+l.config.Name+"/", nil)
	if err != nil {
		return err
	}
	reason, previous := errors.New("first"), ""
	if newest > 0 {
		if err := l.setLogID(newest); err != nil {
			return err
		}
		r, err := l.resume()
		if err == nil {
			err = l.checkLate(r)
		}
		if err == nil && latest <= newest {
			return l.resumeGeneration(r)
		}
		reason, previous = err, l.id
	}
	seal, err := l.newestSeal()
	if err != nil {
		return err
	}
	if newest == 0 && seal.Generation > 0 {
		reason = errors.New("the state is lost")
	}
	if seal.Generation >= newest && seal.Generation > 0 {
		newest, previous = seal.Generation, seal.String()
	}
	checkpoint := copied
	if latest > newest || reason == nil {
		newest, previous = max(newest, latest), copied.LogID
		reason = fmt.Errorf("the state and the log have none of the %d lines of %s "+evidence.ReasonSigned+": the second copy of the checkpoints says so", copied.Size, previous)
	} else if s, err := ReadState(l.config.State, l.config.Name, newest); err == nil {
		checkpoint = s.Checkpoint
	}
	why := evidence.Notice{Reason: l.plain(reason), Previous: previous}
	if checkpoint.Size > 0 && checkpoint.LogID == previous {
		why.Size, why.Root = checkpoint.Size, checkpoint.Root
	}
	return l.begin(newest+1, why)
}

// plain removes the folders of the machine from the reason for a new generation.
func (l *Log) plain(reason error) string {
	text := reason.Error()
	for _, name := range []string{filepath.Join(l.folder, vkeyFile), l.config.File, l.config.Checkpoints} {
		if name != "" {
			text = strings.ReplaceAll(text, filepath.Dir(name)+string(filepath.Separator), "")
		}
	}
	return text
}

func (l *Log) readState(name string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(l.folder, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the file %s of the state is missing", name)
	}
	return text, err
}

// checkLate records which lines are sealed late: those after the newest signed checkpoint, unless
// its own notice is the only one. Their number is bounded: otherwise anyone who set the state back
// could have any number of forged lines sealed by a restart.
func (l *Log) checkLate(r *resumed) error {
	from, to := r.newest.Size, r.tiles.tree.Size()
	if to == from+1 && (r.claim.Size == from || r.known == to) {
		from = to
	}
	if most := l.config.Terms.Crash(); to-from > most {
		return fmt.Errorf("%d lines from line %d on, the first in %s, "+evidence.ReasonUnsigned+": a crash leaves at most %d", to-from, from, filepath.Base(r.file), most)
	}
	if to > from || len(r.tail) > 0 {
		r.late = &evidence.LateLines{From: from, File: filepath.Base(r.file)}
	}
	return nil
}

// resumeGeneration opens the log for a generation that goes on.
func (l *Log) resumeGeneration(r *resumed) error {
	l.tiles, l.size, l.saved, l.newest = r.tiles, r.tiles.tree.Size(), r.tiles.saved, r.newest
	late := r.late
	if len(r.tail) > 0 {
		l.addLeaf(r.tail)
		r.torn++
	}
	if late != nil {
		late.To, late.Torn = l.size, r.torn
	}
	if err := l.start(evidence.Notice{Late: late}); err != nil || late == nil {
		return err
	}
	l.config.Report(Event{"lines that were not sealed when the gateway ended are sealed now", fmt.Sprintf("lines %d to %d, torn: %d", late.From, late.To-1, late.Torn), false})
	return nil
}

// begin starts a generation with an empty tree, after the lines that are already in the log.
func (l *Log) begin(generation int, why evidence.Notice) error {
	if err := l.setLogID(generation); err != nil {
		return err
	}
	l.config.Report(Event{"evidence begins a new generation", l.id + ": " + why.Reason, why.Reason != "first"})
	l.tiles = newTileFiles(l.folder, evidence.Tree{})
	if err := errors.Join(os.MkdirAll(l.folder, 0o700), syncFile(l.dir), appendFile(filepath.Join(l.folder, checkpointsFile), nil)); err != nil {
		return err
	}
	if err := replaceFile(filepath.Join(l.folder, vkeyFile), []byte(l.vkey+"\n")); err != nil {
		return fmt.Errorf("keeping the verifier's key: %w", err)
	}
	return l.start(why)
}

// openLog ends a torn last line, and opens the log to append to it.
func (l *Log) openLog() (err error) {
	end, err := tailOf(l.config.File, 1)
	if err == nil && len(end) > 0 && end[0] != '\n' {
		err = appendFile(l.config.File, []byte("\n"))
	}
	if err != nil {
		return fmt.Errorf("ending a torn line: %w", err)
	}
	if l.dest, err = l.config.Open(); err != nil {
		return err
	}
	if !l.followRotation() {
		return errNoFile
	}
	return lock(l.file) // a process with another state may have it
}

// start opens the log, adds the notice that it was opened, and signs a checkpoint.
func (l *Log) start(line evidence.Notice) error {
	if err := l.openLog(); err != nil {
		return err
	}
	if err := errors.Join(truncatePartialCheckpoint(filepath.Join(l.folder, checkpointsFile)), truncatePartialCheckpoint(l.config.Checkpoints)); err != nil {
		return err
	}
	l.mu.Lock()
	line.Msg, line.At, line.Terms = "opened", timeText(time.Now()), &l.config.Terms
	err := l.writeNotice(line)
	l.rotated = err != nil
	l.mu.Unlock()
	if err != nil {
		return err
	}
	return l.signCheckpoint()
}

// resumed is a generation that goes on.
type resumed struct {
	tiles  *tileFiles
	signed []evidence.Checkpoint
	newest evidence.Checkpoint // the newest of signed, or of size 0
	claim  evidence.Checkpoint // the newest that a notice claims
	next   int64               // the number of the next line, or less than the tree's size if unknown
	file   string              // the file with the first line after the newest checkpoint
	known  int64               // lines according to the position file
	late   *evidence.LateLines // nil if no lines are late
	torn   int                 // torn lines among the late ones
	tail   []byte              // a last line of the current file without its newline, which is not a leaf yet
}

// resume reads the state of a generation, and adds lines of the log that the tree lacks. The error
// says why the generation cannot go on.
func (l *Log) resume() (*resumed, error) {
	vkey, err := l.readState(vkeyFile)
	if err != nil {
		return nil, err
	}
	switch known := strings.TrimSpace(string(vkey)); {
	case !strings.HasPrefix(known, l.id+"+"):
		return nil, errors.New("the gateway has a new name")
	case known != l.vkey:
		return nil, errors.New("new key")
	}
	size, err := l.readPosition()
	if err != nil {
		return nil, err
	}
	tree, err := evidence.Tiles(l.folder).Tree(size)
	if err != nil {
		return nil, err
	}
	r := &resumed{tiles: newTileFiles(l.folder, tree), known: size, next: math.MinInt64}
	for _, name := range []string{filepath.Join(l.folder, checkpointsFile), l.config.Checkpoints} {
		checkpoint, _, err := newestCheckpoint(name, evidence.WithoutGeneration(l.id), note.VerifierList(l.signer))
		if err != nil {
			return nil, err
		}
		if r.signed = append(r.signed, checkpoint); checkpoint.Size > r.newest.Size {
			r.newest = checkpoint
		}
	}
	files, err := l.filesFrom(size)
	if err != nil {
		return nil, err
	}
	for _, name := range files {
		if err := l.sealFile(r, name); err != nil {
			return nil, err
		}
	}
	return r, l.verifyCheckpoints(r)
}

// sealFile adds the lines of a file that the tree lacks.
func (l *Log) sealFile(r *resumed, name string) error {
	for line, err := range linesOf(name) {
		if err != nil {
			return fmt.Errorf("reading the log: %s: %w", name, err)
		}
		line, ended := bytes.CutSuffix(line, []byte("\n"))
		size := r.tiles.tree.Size()
		id, n, sealed := evidence.ReadSeal(line)
		if sealed && id == l.id && r.next < size {
			r.next = n // if lines are missing that the tree has, the audit finds that
		}
		switch {
		case r.next < size:
			r.next++
			continue
		case !ended && name == l.config.File:
			r.tail, r.file = bytes.Clone(line), cmp.Or(r.file, name)
			continue
		case r.next > size || sealed && (id != l.id || n != size):
			return fmt.Errorf("%s: the line behind leaf %d is %d of %s", name, size-1, n, id)
		case sealed && bytes.Contains(line, []byte(msgCheckpoint)):
			var c evidence.Notice
			if json.Unmarshal(line, &c) == nil && c.Size > r.claim.Size {
				r.claim.Size, r.claim.Root = c.Size, c.Root
			}
		case !sealed && size >= r.newest.Size && (!ended || !json.Valid(line)):
			r.torn++
		}
		if size >= r.newest.Size {
			r.file = cmp.Or(r.file, name)
		}
		r.tiles.tree.Append(tlog.RecordHash(line))
		r.next++
		if len(r.tiles.full) >= maxPending/evidence.TileSize {
			if err := r.tiles.save(); err != nil {
				return err
			}
		}
	}
	return r.tiles.save()
}

// msgCheckpoint occurs in notices only: other lines can contain it only with escaped quotes, or
// with another logger.
const msgCheckpoint = `"logger":"` + evidence.Logger + `","msg":"checkpoint"`

// verifyCheckpoints compares the tree with the signed checkpoints in the state, in the second copy,
// and in late lines. If the log has fewer lines than they say, it was cut.
func (l *Log) verifyCheckpoints(r *resumed) error {
	tree := tlog.Tree{N: r.tiles.tree.Size(), Hash: r.tiles.tree.Root()}
	reader := tlog.TileHashReader(tree, evidence.Tiles(l.folder))
	for _, c := range append(r.signed, r.claim) {
		if c.Size == 0 {
			continue
		}
		if c.Size > tree.N {
			return fmt.Errorf("the log has %d lines of the %d "+evidence.ReasonSigned, tree.N, c.Size)
		}
		root, err := tlog.TreeHash(c.Size, reader)
		if err != nil {
			return err
		}
		if root != c.Root {
			return fmt.Errorf("the first %d lines are not those "+evidence.ReasonSigned, c.Size)
		}
	}
	return nil
}

// newestCheckpoint returns the largest checkpoint of the latest generation of a log in a file, or
// one of size 0. Without verifiers it checks no signature: the key may be lost together with the
// state.
func newestCheckpoint(name, log string, verifiers note.Verifiers) (newest evidence.Checkpoint, latest int, err error) {
	text, err := tailOf(name, 256<<10)
	if err != nil {
		return newest, 0, fmt.Errorf("reading checkpoints: %w", err)
	}
	for checkpoint, err := range evidence.ReadCheckpoints(bytes.NewReader(text), verifiers) { // the tail may begin within a checkpoint
		id, _ := evidence.ParseLogID(checkpoint.LogID) // it was read
		later := id.Generation > latest || id.Generation == latest && checkpoint.Size >= newest.Size
		if err == nil && later && evidence.WithoutGeneration(checkpoint.LogID) == log {
			newest, latest = checkpoint, id.Generation
		}
	}
	return newest, latest, nil
}

// truncatePartialCheckpoint removes a partial checkpoint from the end of a file: the power failed
// while it was written.
func truncatePartialCheckpoint(name string) error {
	end, err := tailOf(name, 256<<10)
	if err != nil || bytes.HasSuffix(end, []byte(evidence.CheckpointEnd)) {
		return err
	}
	cut := len(end)
	if i := bytes.LastIndex(end, []byte("\n"+evidence.CheckpointEnd)); i >= 0 {
		cut -= i + len("\n"+evidence.CheckpointEnd)
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil //nolint:nilerror // the file does not exist
	}
	return os.Truncate(name, info.Size()-int64(cut))
}

// newestSeal returns the log ID in the newest sealed line of a log of the same name, for when the
// state is lost. A sealed log has seals in its newest file, or in the one before.
func (l *Log) newestSeal() (newest evidence.LogID, err error) {
	files, err := LogFiles(l.config.File)
	if err != nil {
		return newest, err
	}
	for _, name := range files[max(0, len(files)-2):] {
		for line, err := range linesOf(name) { // an unreadable line has no seal
			id, _, _ := evidence.ReadSeal(line)
			identity, idErr := evidence.ParseLogID(id)
			if err == nil && idErr == nil && identity.Log == l.config.Name && identity.Generation >= newest.Generation {
				newest = identity
			}
		}
	}
	return newest, nil
}
