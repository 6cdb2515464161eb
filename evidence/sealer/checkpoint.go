package sealer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/note"

	"github.com/crawlgate/crawlgate/evidence"
)

// flushLoop signs checkpoints until ctx ends.
func (l *Log) flushLoop(ctx context.Context) {
	tick := time.NewTicker(time.Duration(l.config.Terms.Every * float64(time.Second)))
	defer tick.Stop()
	var failed bool
	var shifted int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-l.wake:
		}
		_ = l.flush() // the status has its error
		l.mu.Lock()
		failure, changes := l.failure(), l.fileChanges
		l.mu.Unlock()
		if failed != (failure != nil) { // report each change once
			failed = !failed
			message := "access log is written and sealed again"
			if failed {
				message = "access log cannot be written or sealed"
			}
			l.config.Report(Event{message, errorText(failure), failed})
		}
		if changes > shifted {
			l.config.Report(Event{"file of the access log was changed by another program, or deleted", "", true})
			shifted = changes
		}
	}
}

// flush signs a checkpoint of all lines, if there are new lines besides notices. It syncs the lines
// before their leaves, and the leaves before it signs.
func (l *Log) flush() error {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	l.mu.Lock()
	idle := l.requestLines == l.signed && l.flushErr == nil
	l.mu.Unlock()
	if idle {
		return nil
	}
	stuck := time.AfterFunc(l.patience, l.stuck)
	defer stuck.Stop()
	err := l.signCheckpoint()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setErrors(l.writeErr, err)
	if err == nil && l.requestLines-l.signed >= int64(l.config.Terms.Lines) { // written in the meantime
		signal(l.wake)
	}
	return err
}

func (l *Log) stuck() {
	l.config.Report(Event{"fsync has taken over 30 s; the access log is still written, but not sealed", l.dir, true})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.setErrors(l.writeErr, errors.New("the disk does not answer"))
}

// signCheckpoint saves all lines, signs a checkpoint, and adds a notice of it to the log.
func (l *Log) signCheckpoint() error {
	requestLines, err := l.save()
	if err != nil {
		return err
	}
	checkpoint := evidence.Checkpoint{LogID: l.id, Size: l.tiles.tree.Size(), Root: l.tiles.tree.Root()}
	checkpoint.Note, err = note.Sign(&note.Note{Text: evidence.CheckpointText(l.id, checkpoint.Size, checkpoint.Root)}, l.signer)
	if err != nil {
		return fmt.Errorf("signing a checkpoint: %w", err)
	}
	if err := l.keepCheckpoint(checkpoint); err != nil {
		return err
	}
	if l.tiles.saved-l.tiles.disk >= mostUnsynced || time.Since(l.tiles.since) >= longestUnsynced {
		if err := l.tiles.sync(); err != nil {
			return err
		}
		l.tiles.tidyUp()
	}
	now := time.Now()
	l.mu.Lock()
	l.newest, l.newestTime, l.signed = checkpoint, now, requestLines
	line := evidence.Notice{Msg: "checkpoint", Size: checkpoint.Size, Root: checkpoint.Root, At: timeText(now)}
	if l.rotated {
		line.Terms = &l.config.Terms
	}
	err = l.writeNotice(line)
	l.rotated = err != nil
	l.mu.Unlock()
	signal(l.cosign)
	return err
}

// keepCheckpoint appends a signed note to the checkpoints of the generation and to their second
// copy. For clients of the tiles it also replaces the file of the newest checkpoint, without fsync.
func (l *Log) keepCheckpoint(checkpoint evidence.Checkpoint) error {
	block := append(slices.Clip(checkpoint.Note), evidence.CheckpointEnd...)
	for _, name := range []string{filepath.Join(l.folder, checkpointsFile), l.config.Checkpoints} {
		if name == "" {
			continue
		}
		if err := appendFile(name, block); err != nil {
			return fmt.Errorf("keeping a checkpoint: %w", err)
		}
	}
	if checkpoint.Size < l.newestSize {
		return nil
	}
	l.newestSize = checkpoint.Size
	name := filepath.Join(l.folder, newestFile)
	if err := errors.Join(os.WriteFile(name+".new", checkpoint.Note, 0o600), os.Rename(name+".new", name)); err != nil {
		return fmt.Errorf("keeping a checkpoint: %w", err)
	}
	return nil
}

// saveNow syncs all lines and tiles without a checkpoint.
func (l *Log) saveNow() error {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	if _, err := l.save(); err != nil {
		return err
	}
	return l.tiles.sync()
}

// save syncs the log and writes the tree. It returns how many lines besides notices are in the
// tree.
func (l *Log) save() (requestLines int64, err error) {
	l.mu.Lock()
	if err = l.checkFile(); err == nil && l.deleted {
		err = l.writeNotice(evidence.Notice{Msg: "deleted", At: timeText(time.Now())})
		l.deleted = err != nil
	}
	if err == nil {
		err = l.fillGap()
	}
	size := l.size
	requestLines = l.requestLines
	if err == nil {
		for _, leaf := range l.pending {
			l.tiles.tree.Append(leaf)
		}
		l.pending = l.pending[:0]
	}
	l.mu.Unlock()
	if err == nil {
		err = l.syncLog()
	}
	if err == nil {
		err = l.tiles.save()
	}
	if err != nil {
		return 0, fmt.Errorf("saving the log and its hashes: %w", err)
	}
	l.mu.Lock()
	l.saved = size
	l.mu.Unlock()
	return requestLines, nil
}

// syncLog syncs the file of the log, and then the rotated files, because it may have been rotated
// since. It also syncs compressed files, because Caddy does not.
func (l *Log) syncLog() error {
	if err := syncIfThere(l.config.File); err != nil {
		return err
	}
	for first := l.synced == nil; ; first = false { // until no more files were rotated or compressed in the meantime
		names, err := rotatedFiles(l.config.File)
		slices.Sort(names)
		if err != nil || !first && slices.Equal(names, l.synced) {
			return err
		}
		for _, name := range names {
			if _, known := slices.BinarySearch(l.synced, name); !known {
				err = errors.Join(err, syncIfThere(name))
			}
		}
		if err = errors.Join(err, syncFile(filepath.Dir(l.config.File))); err != nil {
			return err
		}
		l.synced = names
	}
}

func syncIfThere(name string) error {
	if err := syncFile(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// fillGap reads the leaves that memory had no room for from the log again. Writes wait for it.
func (l *Log) fillGap() error {
	if l.tiles.tree.Size()+int64(len(l.pending)) == l.size {
		return nil
	}
	r, err := l.resume()
	if err == nil && r.tiles.tree.Size() != l.size {
		err = fmt.Errorf("the log has %d lines of %d", r.tiles.tree.Size(), l.size)
	}
	if err != nil {
		return fmt.Errorf("reading leaves from the log again: %w", err)
	}
	l.tiles, l.pending = r.tiles, nil
	return nil
}

// writeLost adds a notice of entries that could not be written. The caller holds the lock.
func (l *Log) writeLost() error {
	if l.lostLines.Lines == 0 || l.closed {
		return nil
	}
	err := l.writeNotice(l.lostLines)
	if err == nil {
		l.lostLines = evidence.Notice{}
	}
	return err
}

// writeNotice adds a notice to the log. The caller holds the lock.
func (l *Log) writeNotice(s evidence.Notice) error {
	s.Level, s.TS, s.Logger = "info", float64(time.Now().UnixMicro())/1e6, evidence.Logger
	line, err := json.Marshal(s)
	if err != nil {
		return err
	}
	err = l.append(append(line, '\n'))
	l.setErrors(err, l.flushErr)
	return err
}

func timeText(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

const (
	// peerInterval is the least time between two batches of notices about peers.
	peerInterval = time.Minute
	// maxPeers bounds the notices of one batch.
	maxPeers = 100
)

// RecordPeerCheckpoints writes new checkpoints of other gateways into the log, at most 100 a
// minute. It skips invalid ones and those of this gateway. These notices alone cause no checkpoint
// until there are many: otherwise two idle gateways would exchange new checkpoints for ever.
func (l *Log) RecordPeerCheckpoints(notes []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || !l.peersAt.IsZero() && time.Since(l.peersAt) < peerInterval {
		return
	}
	heard := make(map[string]bool)
	for _, text := range notes[:min(len(notes), maxPeers)] {
		h, err := evidence.ReadClaim(text)
		if err != nil || strings.HasPrefix(h.LogID, l.config.Gateway+"/") {
			continue
		}
		if !l.peerNotes[text] {
			if err := l.writeNotice(evidence.Notice{Msg: "peer", PeerLog: h.LogID, Size: h.Size, Root: h.Root, Note: text}); err != nil {
				return
			}
			l.peersAt = time.Now()
		}
		heard[text] = true
	}
	l.peerNotes = heard
	if l.size-l.newest.Size > l.config.Terms.Crash()/2 {
		l.signed--
	}
}
