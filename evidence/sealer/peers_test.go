package sealer

import (
	"crypto/ed25519"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/crawlgate/crawlgate/evidence"
)

func noteOf(tb testing.TB, id string, size int64) string {
	tb.Helper()
	signer, _, err := signerOf(id, ed25519.NewKeyFromSeed(make([]byte, 32)))
	if err != nil {
		tb.Fatal(err)
	}
	return string(must(note.Sign(&note.Note{Text: evidence.CheckpointText(id, size, tlog.Hash{byte(size)})}, signer)))
}

// TestRecordPeerCheckpoints checks that each checkpoint of another gateway is written once, at most
// once a minute, and causes no checkpoint of this log.
func TestRecordPeerCheckpoints(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	synctest.Test(t, func(t *testing.T) {
		b.config.Terms.Every = 1
		l := b.open()
		n := len(b.lines())
		hear := func(want int, notes ...string) {
			t.Helper()
			l.RecordPeerCheckpoints(notes)
			if got := len(b.lines()) - n; got != want {
				t.Errorf("%d new lines, want %d: %q", got, want, b.lines()[n:])
			}
			n = len(b.lines())
		}
		one, two := noteOf(t, "gw2/access/1", 5), noteOf(t, "gw3/access/1", 6)
		hear(0)
		hear(0, noteOf(t, "gw1.example/access/1", 9), "nonsense", one+strings.Repeat("x", evidence.MaxPeerNote))
		hear(2, one, two)
		var line struct {
			Logger, Msg, Note, Root string
			PeerLog                 string `json:"peer_log"`
			Size                    int64
		}
		if err := json.Unmarshal([]byte(b.lines()[n-1]), &line); err != nil || line.Logger != evidence.Logger || line.Msg != "peer" ||
			line.Note != two || line.PeerLog != "gw3/access/1" || line.Size != 6 || line.Root != (tlog.Hash{6}).String() {
			t.Errorf("line about a peer = %+v, %v", line, err)
		}
		newer := noteOf(t, "gw2/access/1", 8)
		hear(0, newer, two)
		time.Sleep(peerInterval)
		hear(1, newer, two)
		time.Sleep(time.Hour)
		hear(0, newer, two)
		var many []string
		for size := range int64(2 * maxPeers) {
			many = append(many, noteOf(t, "gw4/access/1", size))
		}
		hear(maxPeers, many...)
		time.Sleep(time.Hour)
		if s := l.Status(); s.Unsealed != 0 || s.Lines != 0 || len(b.lines()) != n {
			t.Errorf("status of a log with lines about peers only = %+v", s)
		}
		b.write(l, entry(1))
		b.close(l)
		l.RecordPeerCheckpoints([]string{noteOf(t, "gw2/access/1", 10)})
	})
	if signed := b.verify(1, 0); int(signed) != len(b.lines())-1 {
		t.Errorf("%d of %d lines are signed, want all but one", signed, len(b.lines()))
	}
}

// TestHearMany checks that lines about peers are never more than half of what a start would seal
// late.
func TestHearMany(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	synctest.Test(t, func(t *testing.T) {
		b.config.Terms.Every, b.config.Terms.Lines = 1, 1
		l := b.open()
		var size int64
		for range 100 {
			var many []string
			for range maxPeers {
				size++
				many = append(many, noteOf(t, "gw4/access/1", size))
			}
			l.RecordPeerCheckpoints(many)
			time.Sleep(peerInterval)
			if s := l.Status(); s.Size-l.newest.Size > 4000+maxPeers {
				t.Fatalf("%d lines have no checkpoint, want at most %d", s.Size-l.newest.Size, 4000+maxPeers)
			}
		}
		b.close(l)
	})
}
