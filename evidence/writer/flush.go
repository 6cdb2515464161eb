package writer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/crawlgate/crawlgate/evidence"
)

// flushAlways signs checkpoints until the context ends.
func (l *Log) flushAlways(ctx context.Context) {
	tick := time.NewTicker(l.config.Every)
	defer tick.Stop()
	var faults faults
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-l.wake:
		}
		err := l.flush()
		l.mu.Lock()
		writeErr, shifted := l.writeErr, l.shifted
		l.mu.Unlock()
		faults.tell(l.config.Report, err, writeErr, shifted)
	}
}

// faults remembers what was told, so that each change is told once.
type faults struct {
	sealing, writing bool
	shifted          int64
}

func (f *faults) tell(report func(Event), sealing, writing error, shifted int64) {
	tell := func(told *bool, err error, fails, works string) {
		if (err != nil) == *told {
			return
		}
		if *told = err != nil; *told {
			report(Event{fails, err.Error(), true})
		} else {
			report(Event{works, "", false})
		}
	}
	tell(&f.sealing, sealing, "access log cannot be sealed; it is written on", "access log is sealed again")
	tell(&f.writing, writing, "access log cannot be written", "access log is written again")
	if shifted > f.shifted {
		report(Event{"file of the access log was changed by another program, or deleted", "", true})
		f.shifted = shifted
	}
}

// flush signs a checkpoint of all that is written, if there are new lines that are not ours. The
// lines are on disk before their leaves count, and these before anything is signed.
func (l *Log) flush() error {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	l.mu.Lock()
	if l.others == l.signed && l.flushErr == nil {
		l.mu.Unlock()
		return nil
	}
	l.mu.Unlock()
	stuck := time.AfterFunc(l.patience, l.stuck)
	defer stuck.Stop()
	err := l.checkpoint()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note(l.writeErr, err)
	return err
}

func (l *Log) stuck() {
	l.config.Report(Event{"a disk has not answered for long; the access log is written on", l.dir, true})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.note(l.writeErr, errors.New("the disk does not answer"))
}

// checkpoint seals, signs, and says so in the log.
func (l *Log) checkpoint() error {
	tree, others, err := l.save()
	if err != nil {
		return err
	}
	text := evidence.CheckpointText(l.id, tree.Size(), tree.Root())
	signed, err := note.Sign(&note.Note{Text: text}, l.signer)
	if err != nil {
		return fmt.Errorf("signing a checkpoint: %w", err)
	}
	head := evidence.Head{Identity: l.id, Size: tree.Size(), Root: tree.Root(), Note: signed}
	if err := l.keepHead(signed); err != nil {
		return err
	}
	now := time.Now()
	l.mu.Lock()
	l.head, l.headTime, l.signed = head, now, others
	err = l.say("checkpoint", checkpointLine{Size: head.Size, Root: head.Root, At: now.UTC().Format(time.RFC3339Nano)})
	l.mu.Unlock()
	l.offer(head)
	return err
}

// keepHead appends a signed note to the checkpoints of the generation and to their second copy.
func (l *Log) keepHead(signed []byte) error {
	l.keeping.Lock()
	defer l.keeping.Unlock()
	block := append(slices.Clip(signed), evidence.HeadEnd...)
	for _, name := range []string{filepath.Join(l.folder, headsFile), l.config.Heads} {
		if name == "" {
			continue
		}
		if err := appendFile(name, block); err != nil {
			return fmt.Errorf("keeping a checkpoint: %w", err)
		}
	}
	return nil
}

// savePosition is save without a checkpoint.
func (l *Log) savePosition() error {
	l.flushing.Lock()
	defer l.flushing.Unlock()
	_, _, err := l.save()
	return err
}

// save brings the log, the leaves and the position to the disk. It gives the tree that is there,
// and the number of lines of others in it.
func (l *Log) save() (tree evidence.Edge, others int64, err error) {
	l.mu.Lock()
	err = l.look()
	if err == nil {
		err = l.fillGap()
	}
	if err == nil {
		err = l.spill()
	}
	tree, others = l.leaves.tree.Clone(), l.others
	at := position{tree.Size(), l.end - int64(len(l.tail))}
	full, leaves := l.leaves.unsynced()
	l.mu.Unlock()
	for _, f := range full {
		err = errors.Join(err, f.Sync(), f.Close())
	}
	if leaves != nil {
		err = errors.Join(err, leaves.Sync()) // it is closed by a later call, or by the end
	}
	if err = errors.Join(err, l.syncLog()); err != nil {
		return tree, 0, fmt.Errorf("bringing the log and its leaves to the disk: %w", err)
	}
	if err := writePosition(l.folder, at); err != nil {
		return tree, 0, fmt.Errorf("writing the position: %w", err)
	}
	return tree, others, nil
}

// syncLog waits until the file of the log is on disk, and then the rotated ones, of which it may be
// one by now. Those that were packed are among them: the one who packs does not wait for that.
func (l *Log) syncLog() error {
	if err := syncIfThere(l.config.File); err != nil {
		return err
	}
	for again := true; again; { // files may be rotated and packed meanwhile
		names, err := rotatedFiles(l.config.File)
		if err != nil {
			return err
		}
		there := make(map[string]bool, len(names))
		again = l.synced == nil // the file may be new
		for _, name := range names {
			if !l.synced[name] {
				if err := syncIfThere(name); err != nil {
					return err
				}
				again = true
			}
			there[name] = true
		}
		l.synced = there
		if again {
			if err := syncFile(filepath.Dir(l.config.File)); err != nil {
				return err
			}
		}
	}
	return nil
}

func syncIfThere(name string) error {
	if err := syncFile(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// fillGap reads leaves that memory had no room for from the log again. The log waits for it.
func (l *Log) fillGap() error {
	if !l.gap {
		return nil
	}
	r, err := l.resume()
	if err != nil {
		return fmt.Errorf("reading leaves from the log again: %w", err)
	}
	if size := r.leaves.tree.Size(); size != l.size {
		return fmt.Errorf("the log has %d lines of %d", size, l.size)
	}
	_ = l.leaves.close() // what was written has been read from the log again
	l.leaves, l.gap = r.leaves, false
	return nil
}

// offer gives a checkpoint to the witnesses. One that they have not come to is given up.
func (l *Log) offer(head evidence.Head) {
	select {
	case <-l.newest:
	default:
	}
	select {
	case l.newest <- head:
	default:
	}
}

// The lines of our own.
type (
	checkpointLine struct {
		Size int64     `json:"size"`
		Root tlog.Hash `json:"root"`
		At   string    `json:"at"`
	}
	resumedLine struct {
		From int64 `json:"from"`
		To   int64 `json:"to"`
		Torn int   `json:"torn"`
	}
	generationLine struct {
		Reason   string `json:"reason"`
		Previous string `json:"previous"`
	}
)

// say writes a line of our own into the log, under its lock. The order of its members is fixed.
func (l *Log) say(message string, what any) error {
	members, err := json.Marshal(what)
	if err != nil {
		return err
	}
	ts := float64(time.Now().UnixMicro()) / 1e6
	line := fmt.Appendf(nil, `{"level":"info","ts":%.6f,"logger":"%s","msg":"%s",%s`, ts, loggerName, message, members[1:])
	err = l.append(append(line, '\n'))
	l.note(err, l.flushErr)
	return err
}
