package writer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/crawlgate/crawlgate/evidence"
)

// replaceFile writes a file that is there as a whole or not at all, also after a power cut.
func replaceFile(name string, data []byte) error {
	temporary := name + ".new"
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, name); err != nil {
		return err
	}
	return syncFile(filepath.Dir(name))
}

// syncFile waits until what was written to a file by anybody is on disk. Of a folder these are the
// names in it.
func syncFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// appendFile adds to the end of a file and waits until that is on disk. It adds all or nothing,
// unless the process ends within.
func appendFile(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		if _, err = f.Write(data); err != nil {
			err = errors.Join(err, f.Truncate(info.Size()))
		}
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// takeLock keeps other processes from a log, until the file is closed or the process has ended.
func takeLock(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = errors.New("another process writes this log")
		}
		return nil, errors.Join(fmt.Errorf("locking %s: %w", name, err), f.Close())
	}
	return f, nil
}

// position is how far the log is in the tree: the line before Offset, in one of its files, is the
// last of Size leaves.
type position struct {
	Size   int64 `json:"size"`
	Offset int64 `json:"offset"`
}

const positionFile = "position"

func readPosition(dir string) (p position, err error) {
	text, err := os.ReadFile(filepath.Join(dir, positionFile))
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err == nil && (p.Size < 1 || p.Offset < 1) {
		err = fmt.Errorf("%.200q is no position", text)
	}
	return p, err
}

// writePosition writes over the position, which has one length and thus one block of the disk. It
// does not wait for the disk: after a power cut an older position has more of the log read again.
func writePosition(dir string, p position) error {
	name := filepath.Join(dir, positionFile)
	text := fmt.Appendf(nil, "{\"size\": %19d, \"offset\": %19d}\n", p.Size, p.Offset)
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return replaceFile(name, text)
	}
	if err != nil {
		return err
	}
	_, err = f.WriteAt(text, 0)
	return errors.Join(err, f.Close())
}

// newestGeneration is the highest number of a generation in a state folder, 0 for none.
func newestGeneration(dir string) (newest int, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && e.IsDir() && strconv.Itoa(n) == e.Name() {
			newest = max(newest, n)
		}
	}
	return newest, nil
}

// leafFiles appends leaves to the files of a generation. It is not safe for concurrent use.
type leafFiles struct {
	dir    string
	tree   evidence.Edge // of what has been written
	opened *os.File
	number int64
	full   []*os.File // whose leaves may not be on disk yet
}

// write adds the hashes in data. What fails can be written again: every byte has its place.
func (l *leafFiles) write(data []byte) error {
	for len(data) > 0 {
		size := l.tree.Size()
		at := size % evidence.LeavesPerFile
		if err := l.open(size / evidence.LeavesPerFile); err != nil {
			return err
		}
		part := data[:min(int64(len(data)), (evidence.LeavesPerFile-at)*tlog.HashSize)]
		if _, err := l.opened.WriteAt(part, at*tlog.HashSize); err != nil {
			return fmt.Errorf("writing leaves: %w", err)
		}
		next := l.tree.Clone()
		for i := 0; i < len(part); i += tlog.HashSize {
			next.Append(tlog.Hash(part[i:]))
		}
		if next.Size()%evidence.LeavesPerFile == 0 {
			if err := l.finish(next.Full()); err != nil {
				return err
			}
		}
		l.tree, data = next, data[len(part):]
	}
	return nil
}

func (l *leafFiles) open(number int64) error {
	if l.opened != nil && l.number == number {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(l.dir, evidence.LeavesFile(number)), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("writing leaves: %w", err)
	}
	l.opened, l.number = f, number
	return nil
}

// finish ends a full file, with its hash beside.
func (l *leafFiles) finish(hash tlog.Hash) error {
	f, err := os.OpenFile(filepath.Join(l.dir, evidence.SubtreesFile), os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("writing the hash of full leaves: %w", err)
	}
	if _, err = f.WriteAt(hash[:], l.number*tlog.HashSize); err != nil {
		return errors.Join(fmt.Errorf("writing the hash of full leaves: %w", err), f.Close())
	}
	l.full = append(l.full, l.opened, f)
	l.opened = nil
	return nil
}

// trim takes off what files have behind the tree: leaves of lines that a power cut took.
func (l *leafFiles) trim() error {
	size := l.tree.Size()
	number := size / evidence.LeavesPerFile
	err := errors.Join(
		truncateFile(filepath.Join(l.dir, evidence.LeavesFile(number)), size%evidence.LeavesPerFile*tlog.HashSize),
		truncateFile(filepath.Join(l.dir, evidence.SubtreesFile), number*tlog.HashSize))
	for ; err == nil; number++ {
		err = os.Remove(filepath.Join(l.dir, evidence.LeavesFile(number+1)))
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("trimming leaves: %w", err)
	}
	return nil
}

func truncateFile(name string, size int64) error {
	if err := os.Truncate(name, size); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (l *leafFiles) close() error {
	if l.opened == nil {
		return nil
	}
	return l.opened.Close()
}

// unsynced gives the files that may not be on disk. Those that are full are the caller's to close.
func (l *leafFiles) unsynced() (full []*os.File, opened *os.File) {
	full, l.full = l.full, nil
	return full, l.opened
}

// tailOf reads the end of a file, from the beginning of a line where it is longer than most.
func tailOf(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()                     // it was only read
	if _, err := f.Seek(-most, io.SeekEnd); err != nil { // it is shorter
		return io.ReadAll(io.LimitReader(f, most))
	}
	return io.ReadAll(f)
}
