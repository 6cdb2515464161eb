package verify

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/crawlgate/crawlgate/evidence"
)

const peerID = "peer.example/access/1"

// heardBy adds the sealed log of another gateway, which has checkpoints of the fixture. It returns
// that log's folder of evidence and key.
func (f *fixture) heardBy(notes ...string) (folder, key string) {
	f.tb.Helper()
	folder = f.tb.TempDir()
	dir := filepath.Join(folder, "access", "1")
	secret, public, err := note.GenerateKey(bytes.NewReader(bytes.Repeat([]byte{9}, 100)), peerID)
	if err != nil {
		f.tb.Fatal(err)
	}
	s, err := note.NewSigner(secret)
	if err != nil {
		f.tb.Fatal(err)
	}
	var edge evidence.Tree
	var leaves []byte
	var lines strings.Builder
	var checkpoint []byte // of all lines but the last
	for seq, n := range append([]string{""}, notes...) {
		text, _ := json.Marshal(n)
		line := evidence.Splice([]byte(`{"logger":"crawlgate.evidence","msg":"peer","note":`+string(text)+`}`), peerID, int64(seq))
		lines.Write(line)
		if seq == len(notes) {
			checkpoint, err = note.Sign(&note.Note{Text: evidence.CheckpointText(peerID, edge.Size(), edge.Root())}, s)
		}
		leaf := tlog.RecordHash(bytes.TrimSuffix(line, []byte("\n")))
		edge.Append(leaf)
		leaves = append(leaves, leaf[:]...)
	}
	if err != nil {
		f.tb.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		f.tb.Fatal(err)
	}
	for name, data := range map[string][]byte{"vkey": []byte(public), "heads": append(checkpoint, evidence.CheckpointEnd...)} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			f.tb.Fatal(err)
		}
	}
	writeTiles(f.tb, dir, leaves)
	f.files = append(f.files, file{"peer.log", lines.String()})
	return folder, public
}

// checkpoints returns the checkpoints of a generation, as peers get them.
func (f *fixture) checkpoints(g int) (notes []string) {
	f.tb.Helper()
	for n := range strings.SplitSeq(strings.TrimSuffix(string(f.read(g, "heads")), evidence.CheckpointEnd), evidence.CheckpointEnd) {
		notes = append(notes, n)
	}
	return notes
}

// cutTo sets a generation back to one of its checkpoints, with its leaves and its checkpoints.
func (f *fixture) cutTo(g, checkpoints int) {
	f.tb.Helper()
	f.writeLeaves(g, f.leaves(g)[:50*checkpoints*tlog.HashSize])
	kept := f.checkpoints(g)[:checkpoints]
	f.write(g, "heads", []byte(strings.Join(kept, evidence.CheckpointEnd)+evidence.CheckpointEnd))
}

// TestPeers checks that checkpoints in the log of another gateway reveal that a log was rewritten.
// A checkpoint that cannot be checked is counted, or is a finding if its log is given.
func TestPeers(t *testing.T) {
	t.Parallel()
	other := func(size int) string { // of a log that never existed, signed with the key of generation 1
		f := newFixture(t)
		var e evidence.Tree
		for range size {
			e.Append(tlog.Hash{})
		}
		return strings.TrimSuffix(string(f.sign(1, e)), evidence.CheckpointEnd)
	}
	honest := newFixture(t)
	first, second := honest.checkpoints(1), honest.checkpoints(2)
	badly := strings.Replace(first[1], "\n100\n", "\n101\n", 1)
	elsewhere := strings.ReplaceAll(first[1], "gw.example/", "gw3.example/")
	for _, tt := range []struct {
		name    string
		given   bool // the keys
		notes   []string
		change  func(f *fixture)
		want    string
		peers   int64 // of generation 1
		unknown int64
	}{
		{"honest", false, slices.Concat(first, second, first[:1]), func(*fixture) {}, "", 7, 0},
		{"the tail is cut, with leaves and checkpoints", false, append(slices.Clone(first), second...), func(f *fixture) {
			f.cutTo(2, 1)
			f.edit(2, func(l []string) []string { return l[:firstSize-2*perFile+50] })
		}, "access-2.log:70 seal_tail", 6, 0},
		{"a whole generation is cut", true, append(slices.Clone(first), second...), func(f *fixture) {
			os.RemoveAll(f.dir(2))
			f.edit(2, func(l []string) []string { return l[:firstSize-2*perFile] })
		}, "peer.log:9 seal_tail", 6, 0},
		{"only the checkpoints are cut", false, second, func(f *fixture) {
			f.write(2, "heads", []byte(f.checkpoints(2)[0]+evidence.CheckpointEnd))
			f.edit(2, func(l []string) []string { return l[:firstSize-2*perFile+secondSize] })
		}, "peer.log:3 seal_head", 0, 0},
		{"another log under the same key", false, []string{other(150), other(100)}, func(*fixture) {}, "peer.log:2 seal_fork", 2, 0},
		{"the first generation is gone with its state", false, append(slices.Clone(first), second...), func(f *fixture) {
			os.RemoveAll(f.dir(1))
			f.edit(2, func(l []string) []string { return l[firstSize-2*perFile:] })
			f.files = f.files[2:]
		}, "access-2.log:1 seal_missing", 0, 6},
		{"honest, the keys are given", true, slices.Concat(first, second), func(*fixture) {}, "", 6, 0},
		{"a whole generation with a key that is not known is cut", false, second, func(f *fixture) {
			os.RemoveAll(f.dir(2))
			f.edit(2, func(l []string) []string { return l[:firstSize-2*perFile] })
		}, "", 0, 2},
		{"not signed by the log's key", false, []string{badly, badly}, func(*fixture) {}, "peer.log:2 seal_head", 0, 0},
		{"of a log that is not given", false, []string{elsewhere, "nonsense", "gw.example/access/1\n1\n"}, func(*fixture) {}, "", 0, 3},
		{"leaves that end before it", false, first, func(f *fixture) {
			f.writeLeaves(1, f.leaves(1)[:120*tlog.HashSize])
		}, "", 6, 0},
	} {
		f := newFixture(t)
		tt.change(f)
		folder, key := f.heardBy(tt.notes...)
		cfg := Config{Folders: []string{folder}}
		if tt.given {
			cfg.Keys = []string{key, f.keys[1].public, f.keys[2].public}
		}
		found, totals := f.check(cfg)
		if got := strings.Join(found, ", "); got != tt.want {
			t.Errorf("%s: found %q, want %q", tt.name, got, tt.want)
		}
		i := slices.IndexFunc(totals.Logs, func(l LogTotals) bool { return l.Log == id(1) })
		peers, elsewhere := int64(0), false
		if i >= 0 {
			peers, elsewhere = totals.Logs[i].Peers, totals.Logs[i].KeptElsewhere
		}
		if peers != tt.peers || totals.PeersUnknown != tt.unknown || elsewhere != (tt.peers > 0) {
			t.Errorf("%s: %d checkpoints in lines of the peer and %d unknown: %+v", tt.name, peers, totals.PeersUnknown, totals)
		}
	}
}
