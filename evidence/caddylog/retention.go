package caddylog

import (
	"cmp"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/logging"
	"go.uber.org/zap"

	"github.com/crawlgate/crawlgate/evidence/sealer"
	"github.com/crawlgate/crawlgate/internal/lines"
)

const (
	day = 24 * time.Hour
	// logLine is the mean length of a sealed line in bytes (docs/operate.md).
	logLine = 1315
)

// keptFiles are the open logs, as CheckRetention last found them.
var keptFiles atomic.Pointer[[]File]

// File is an open log, with the writer of its files.
type File struct {
	Name, Path string
	Writer     *logging.FileWriter
	// Oldest is the time of its first line. It is zero if that cannot be read.
	Oldest time.Time
	// Kept says that roll_keep does not drop lines before roll_keep_for is over.
	Kept bool

	rolled int // how many files were rotated
}

// Files returns the open logs, as [CheckRetention] last found them.
func Files() []File {
	if files := keptFiles.Load(); files != nil {
		return *files
	}
	return nil
}

// openFiles returns the open logs.
func openFiles() (files []File) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, s := range all.byKey {
		if n := len(s.settings); n > 0 {
			t := s.settings[n-1]
			files = append(files, File{Name: t.Name, Path: t.paths.log, Writer: t.file})
		}
	}
	return files
}

// keeps returns how long roll_keep keeps the lines of a log that gets rate lines a second.
func keeps(w *logging.FileWriter, rate float64) time.Duration {
	each := float64(cmp.Or(w.RollSizeMB, DefaultRollSizeMB)<<20) / logLine / rate // infinite for 0
	for perDay, n := range map[float64]int{1: len(w.RollAt), 24: len(w.RollAtMinutes)} {
		if n > 0 {
			each = min(each, day.Seconds()/perDay/float64(n))
		}
	}
	if w.RollInterval > 0 {
		each = min(each, time.Duration(w.RollInterval).Seconds())
	}
	const century = 100 * 365 * 24 * 3600
	return time.Duration(min(each*float64(cmp.Or(w.RollKeep, DefaultRollKeep)), century)) * time.Second
}

// look finds out how much of a log is kept. might means that roll_keep would drop files before
// roll_keep_for is over, if the log got one line a second.
func (l *File) look(now time.Time) (might bool) {
	if names, err := sealer.LogFiles(l.Path); err == nil && len(names) > 0 {
		l.rolled, l.Oldest = len(names)-1, firstTime(names[0])
	}
	w, keepFor := l.Writer, time.Duration(l.Writer.RollKeepDays)*day
	if w.Roll != nil && !*w.Roll {
		keepFor = 0 // none is dropped
	}
	full := l.rolled >= cmp.Or(w.RollKeep, DefaultRollKeep)
	l.Kept = keeps(w, 0) >= keepFor && (!full || now.Sub(l.Oldest) >= keepFor)
	return !l.Kept || keeps(w, 1) < keepFor
}

// CheckRetention finds the oldest line of each sealed log, for the metrics. With warn it warns of
// logs whose roll_keep drops lines that roll_keep_for promises, and of log files that were renamed
// while they are open.
func CheckRetention(logger *zap.Logger, warn bool) {
	files := openFiles()
	for i := range files {
		l := &files[i]
		if might := l.look(time.Now()); warn && might {
			logger.Warn("roll_keep drops files of an access log before roll_keep_for is over: raise roll_keep",
				zap.String("log", l.Path), zap.Int("roll_keep_for_days", l.Writer.RollKeepDays),
				zap.Duration("kept_at_a_line_a_second", keeps(l.Writer, 1)), zap.Time("oldest_line", l.Oldest))
		}
	}
	keptFiles.Store(&files)
	if open, _ := filepath.Glob("/proc/self/fd/*"); warn { // other systems do not have this folder
		for _, name := range renamed(open) {
			logger.Warn("a log was renamed, and its lines go on into the renamed file: have logrotate use copytruncate, with roll_disabled in the log",
				zap.String("file", name))
		}
	}
}

// rotatedName matches the suffix that logrotate adds to a name.
var rotatedName = regexp.MustCompile(`(\.\d+|-\d{8}(-\d+)?)$`)

// renamed returns the open files that logrotate has renamed and replaced by another file. links
// are the links of all open files.
func renamed(links []string) (names []string) {
	for _, link := range links {
		name, err := os.Readlink(link)
		if at := rotatedName.FindStringIndex(name); err == nil && at != nil {
			if _, err := os.Stat(name[:at[0]]); err == nil {
				names = append(names, name)
			}
		}
	}
	return names
}

// firstTime returns the time of the first line of a file, compressed or not. It is zero if it
// cannot be read.
func firstTime(name string) (at time.Time) {
	for text, err := range lines.Of(func() (io.ReadCloser, error) { return os.Open(name) }, 1<<20) {
		var line struct{ TS any }
		if err != nil || json.Unmarshal(text, &line) != nil { // a line that is not JSON has no time
			return at
		}
		switch ts := line.TS.(type) {
		case string:
			at, _ = time.Parse(time.RFC3339, ts)
		case float64:
			for ts > 1e11 { // milliseconds or nanoseconds
				ts /= 1e3
			}
			at = time.Unix(int64(ts), 0)
		}
		break
	}
	return at
}
