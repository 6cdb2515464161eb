package verify

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/crawlgate/crawlgate/evidence"
)

// long is a log with a full tile of level 1. Its oldest lines have expired.
type long struct {
	*fixture
	lines  []string // from kept on
	leaves []byte
	signed [][]byte // checkpoints of 25,000, 50,000, 65,560 and all lines
}

const (
	full     = evidence.TileSize * evidence.TileSize
	longSize = full + 100
	kept0    = full - 100
)

func newLong(tb testing.TB) *long {
	tb.Helper()
	l := &long{fixture: newFixtureOf(tb, "null", 1000)} // the lines span more than a day
	var edge evidence.Tree
	for seq := range int64(longSize) {
		line := string(evidence.Splice([]byte(`{}`), id(1), seq))
		if seq == full+50 {
			line = string(evidence.Splice([]byte(`{"logger":"crawlgate.evidence","msg":"opened","terms":{"roll_keep_days":1}}`), id(1), seq))
		}
		leaf := tlog.RecordHash([]byte(strings.TrimSuffix(line, "\n")))
		edge.Append(leaf)
		l.leaves = append(l.leaves, leaf[:]...)
		if seq >= kept0 {
			l.lines = append(l.lines, line)
		}
		switch edge.Size() {
		case 25_000, 50_000, full + 24, longSize:
			l.signed = append(l.signed, l.sign(1, edge))
		}
	}
	if err := os.RemoveAll(l.dir(2)); err != nil {
		tb.Fatal(err)
	}
	return l
}

// restore writes the log and its state as they were.
func (l *long) restore(tb testing.TB) {
	tb.Helper()
	l.tb = tb
	l.files = []file{{"access.log", strings.Join(l.lines, "")}}
	l.write(1, "heads", slices.Concat(l.signed...))
	l.writeLeaves(1, l.leaves)
}

// forge changes the line with a number, and its leaf.
func (l *long) forge(seq int) {
	l.edit(0, func(lines []string) []string {
		lines[seq-kept0] = madeUp(seq)
		return lines
	})
	leaves, leaf := slices.Clone(l.leaves), tlog.RecordHash([]byte(strings.TrimSuffix(madeUp(seq), "\n")))
	copy(leaves[seq*tlog.HashSize:], leaf[:])
	l.writeLeaves(1, leaves)
}

// TestTilesGone checks that hashes over tiles replace only missing leaves.
func TestTilesGone(t *testing.T) {
	t.Parallel()
	l := newLong(t)
	gone := func() {
		for n := range int64(full / evidence.TileSize) {
			tile := evidence.Tile{Tile: tlog.Tile{H: 8, N: n, W: evidence.TileSize}}
			if err := os.Remove(filepath.Join(l.dir(1), tile.Path())); err != nil {
				t.Fatal(err)
			}
		}
	}
	expire := func() { l.edit(0, func(lines []string) []string { return lines[100:] }) }
	for _, tt := range []struct {
		name   string
		change func()
		want   string
		totals LogTotals // of its Sealed, Unproven and Expired
	}{
		{"all there", func() {}, "", LogTotals{Sealed: 200, Expired: kept0}},
		{"old leaves are gone with their lines", func() { expire(); gone() }, "", LogTotals{Sealed: 100, Expired: full}},
		{"old leaves are gone before their lines", gone, "access.log:1 seal_leaves", LogTotals{Sealed: 100, Unproven: 100, Expired: kept0}},
		{"checkpoints that come late, with cosignatures", func() {
			l.write(1, "heads", slices.Concat(l.signed[0], l.signed[2], l.signed[1], l.signed[3], l.signed[2]))
		}, "", LogTotals{Sealed: 200, Expired: kept0}},
		{"a line and its leaf, and the checkpoints of that file", func() {
			l.forge(kept0 + 10)
			l.write(1, "heads", slices.Concat(l.signed[2], l.signed[3]))
		}, "heads:1 seal_leaves, access.log:1 seal_missing", LogTotals{Unproven: 200}},
		{"a line and its leaf, and checkpoints in another order", func() {
			l.forge(kept0 + 10)
			l.write(1, "heads", slices.Concat(l.signed[3], l.signed[2], l.signed[0], l.signed[1]))
		}, "heads:3 seal_leaves, access.log:1 seal_missing", LogTotals{Unproven: 200}},
		{"a line and its leaf, and the leaves behind", func() {
			l.forge(kept0 + 10)
			l.write(1, "heads", slices.Concat(l.signed[2], l.signed[3]))
			os.RemoveAll(filepath.Join(l.dir(1), "tile", "0", "256.p"))
		}, "access.log:1 seal_missing", LogTotals{Unproven: 200}},
		{"old leaves and all later checkpoints", func() { gone(); l.write(1, "heads", slices.Concat(l.signed[:2]...)) }, "access.log:1 seal_missing, access.log:1 incomplete", LogTotals{}},
	} {
		l.restore(t)
		tt.change()
		found, totals := l.check(Config{})
		got := LogTotals{Sealed: totals.Logs[0].Sealed, Unproven: totals.Logs[0].Unproven, Expired: totals.Logs[0].Expired}
		if strings.Join(found, ", ") != tt.want || got != tt.totals {
			t.Errorf("%s: %q, %+v, want %q, %+v", tt.name, found, got, tt.want, tt.totals)
		}
	}
}
