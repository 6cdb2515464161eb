package sealer

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	cosign "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/crawlgate/crawlgate/evidence"
)

// testWitness is a witness of one log, as C2SP tlog-witness v1.0.0 describes it.
type testWitness struct {
	vkey   string
	signer note.Signer
	log    func() note.Verifier

	mu    sync.Mutex
	size  int64
	root  tlog.Hash
	seen  []int64 // sizes that it cosigned
	codes []int   // its answers
	bad   func(w http.ResponseWriter) bool
}

func newWitness(t *testing.T, name string, log func() note.Verifier) *testWitness {
	t.Helper()
	skey, vkey, err := note.GenerateKey(rand.Reader, name)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := cosign.NewSignerForCosignatureV1(skey)
	if err != nil {
		t.Fatal(err)
	}
	w := &testWitness{signer: signer, log: log}
	if w.vkey, err = cosign.VKeyToCosignatureV1(vkey); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *testWitness) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bad != nil && w.bad(rw) {
		return
	}
	code, answer := w.add(r)
	w.codes = append(w.codes, code)
	rw.WriteHeader(code)
	io.WriteString(rw, answer)
}

func (w *testWitness) add(r *http.Request) (int, string) {
	body, _ := io.ReadAll(r.Body)
	first, text, _ := bytes.Cut(body, []byte("\n\n"))
	lines := strings.Split(string(first), "\n")
	var old int64
	if _, err := fmt.Sscanf(lines[0], "old %d", &old); err != nil || r.Method != http.MethodPost || r.URL.Path != "/w/add-checkpoint" {
		return http.StatusBadRequest, ""
	}
	checkpoint, err := evidence.ParseCheckpoint(text, note.VerifierList(w.log()))
	if err != nil {
		return http.StatusForbidden, err.Error()
	}
	if old > checkpoint.Size {
		return http.StatusBadRequest, ""
	}
	if old != w.size {
		return http.StatusConflict, fmt.Sprintf("%d\n", w.size)
	}
	var proof tlog.TreeProof
	for _, line := range lines[1:] {
		h, _ := base64.StdEncoding.DecodeString(line)
		proof = append(proof, tlog.Hash(h))
	}
	switch {
	case old == checkpoint.Size && (checkpoint.Root != w.root || len(proof) > 0):
		return http.StatusConflict, fmt.Sprintf("%d\n", w.size)
	case old == 0 && len(proof) > 0, old > 0 && old < checkpoint.Size && tlog.CheckTree(proof, checkpoint.Size, checkpoint.Root, old, w.root) != nil:
		return http.StatusUnprocessableEntity, ""
	}
	n, _ := note.Open(text, note.VerifierList(w.log()))
	cosigned, err := note.Sign(&note.Note{Text: n.Text}, w.signer)
	if err != nil {
		return http.StatusInternalServerError, err.Error()
	}
	w.size, w.root, w.seen = checkpoint.Size, checkpoint.Root, append(w.seen, checkpoint.Size)
	_, signature, _ := bytes.Cut(cosigned, []byte("\n\n"))
	return http.StatusOK, string(signature)
}

// serve runs a witness for the log of a bench.
func (b *bench) serve(name string) *testWitness {
	b.t.Helper()
	w := newWitness(b.t.(*testing.T), name, func() note.Verifier {
		vkey, _ := os.ReadFile(filepath.Join(b.config.State, "access", "1", vkeyFile))
		return must(note.NewVerifier(strings.TrimSpace(string(vkey))))
	})
	server := httptest.NewServer(w)
	b.t.Cleanup(server.Close)
	b.config.Witnesses = append(b.config.Witnesses, must(ParseWitness(server.URL+"/w/", w.vkey)))
	return w
}

func (w *testWitness) sizes() []int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]int64(nil), w.seen...)
}

// cosigned waits until a witness has cosigned the newest checkpoint. The cosignature is kept by the
// time the log is closed.
func cosigned(t *testing.T, l *Log, w *testWitness) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		s := l.Status()
		if size, ok := s.Witnesses[w.signer.Name()]; ok && size.Size == l.newest.Size && len(w.sizes()) > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the checkpoint is not cosigned: %+v", s)
		}
	}
}

// TestWitnesses checks that each checkpoint is cosigned, also after a restart, when the witness
// states the size that it knows, and while another witness is unreachable.
func TestWitnesses(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	w1, w2 := b.serve("w1.example"), b.serve("w2.example")
	w2.bad = func(rw http.ResponseWriter) bool { rw.WriteHeader(http.StatusNotFound); return true }
	w1.bad = w2.bad
	l := b.open()
	for deadline := time.Now().Add(10 * time.Second); l.Status().Unwitnessed == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the missing cosignature was not reported")
		}
	}
	w1.mu.Lock()
	w1.bad = nil
	w1.mu.Unlock()
	for range 5 {
		b.write(l, entry(1), entry(2), entry(3))
		b.flush(l)
		cosigned(t, l, w1)
	}
	if s := l.Status().Witnesses["w2.example"]; s.Size != 0 || !strings.Contains(s.Error, "status 404") {
		t.Errorf("status of the unreachable witness = %+v", s)
	}
	if e, told := b.told("checkpoint is cosigned by no witness"); !told || !strings.Contains(e.Detail, "status 404") || l.Status().Unwitnessed == 0 {
		t.Errorf("reported %+v", e)
	}
	b.close(l)
	w2.mu.Lock()
	w2.bad = nil
	w2.mu.Unlock()
	l = b.open()
	cosigned(t, l, w1)
	cosigned(t, l, w2)
	b.close(l)
	w1.mu.Lock()
	defer w1.mu.Unlock()
	if got := fmt.Sprint(w1.codes); !strings.Contains(got, "409 200") || strings.Contains(got, "422") {
		t.Errorf("answers %s, want a conflict and then none", got)
	}
	b.verify(1, 0)
	both := false
	for checkpoint := range evidence.ReadCheckpoints(bytes.NewReader(must(os.ReadFile(filepath.Join(l.folder, checkpointsFile)))), note.VerifierList(l.signer)) {
		_, err := note.Open(checkpoint.Note, note.VerifierList(b.config.Witnesses[0].Verifier))
		_, err2 := note.Open(checkpoint.Note, note.VerifierList(b.config.Witnesses[1].Verifier))
		both = both || err == nil && err2 == nil
	}
	if !both {
		t.Error("no checkpoint has both signatures")
	}
}

// TestWitnessedEnd checks that the checkpoint after `closed` is cosigned when the process ends, and
// that its cosignatures are in the file for clients of the tiles.
func TestWitnessedEnd(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config.Checkpoints = filepath.Join(b.dir, "copy")
	w := b.serve("w.example")
	l := b.open()
	cosigned(t, l, w)
	b.write(l, entry(1))
	b.close(l)
	for _, name := range []string{filepath.Join(l.folder, checkpointsFile), filepath.Join(l.folder, newestFile), b.config.Checkpoints} {
		var newest evidence.Checkpoint
		text := append(must(os.ReadFile(name)), evidence.CheckpointEnd...)
		for checkpoint := range evidence.ReadCheckpoints(bytes.NewReader(text), note.VerifierList(l.signer, b.config.Witnesses[0].Verifier)) {
			if checkpoint.Size >= newest.Size {
				newest = checkpoint
			}
		}
		if _, err := note.Open(newest.Note, note.VerifierList(b.config.Witnesses[0].Verifier)); err != nil || newest.Size != 4 {
			t.Errorf("%s: the last checkpoint covers %d lines, want 4: %v", name, newest.Size, err)
		}
	}
	b.verify(1, 0)
}

// TestBadWitnesses checks which errors bad answers of a witness cause.
func TestBadWitnesses(t *testing.T) {
	t.Parallel()
	other := newWitness(t, "w.example", nil)
	for name, tt := range map[string]struct {
		code   int
		answer func(text string) string
		want   string
	}{
		"conflict without size": {409, func(string) string { return "no" }, "status 409 without a size"},
		"negative size":         {409, func(string) string { return "-1" }, "status 409 without a size"},
		"ahead":                 {409, func(string) string { return "99\n" }, "it knows 99 lines, more than the 1 of the log: the log was set back"},
		"always in conflict":    {409, func(string) string { return "1\n" }, "status 409 again"},
		"forbidden":             {403, func(string) string { return "who?" }, `status 403: "who?"`},
		"unprocessable":         {422, func(string) string { return "" }, "status 422"},
		"redirect":              {307, func(string) string { return "" }, "status 307"},
		"empty":                 {200, func(string) string { return "" }, "its cosignature: "},
		"another key": {200, func(text string) string {
			signed, _ := note.Sign(&note.Note{Text: text}, other.signer)
			return string(signed[len(text)+1:])
		}, "its cosignature: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			w := b.serve("w.example")
			l := &Log{config: b.config}
			w.bad = func(rw http.ResponseWriter) bool {
				rw.WriteHeader(tt.code)
				io.WriteString(rw, tt.answer("g/a/1\n1\n"+tlog.Hash{}.String()+"\n"))
				return true
			}
			checkpoint := evidence.Checkpoint{Size: 1, Note: []byte("g/a/1\n1\n" + tlog.Hash{}.String() + "\n\n— g AAAAAAAA\n")}
			var status WitnessStatus
			_, err := l.askWitness(t.Context(), b.config.Witnesses[0], &status, checkpoint)
			if err == nil || !strings.Contains(err.Error(), tt.want) || status.Error != err.Error() {
				t.Errorf("got %v\nwant %s", err, tt.want)
			}
		})
	}
	if _, err := ParseWitness("http://w", "w+00000000+AAAA"); err == nil {
		t.Error("ParseWitness accepts an invalid key")
	}
}

// TestSlowWitness checks that nothing waits for a witness, except the end of the process, which
// does not wait long.
func TestSlowWitness(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		w := newWitness(t, "w.example", nil)
		b.config.Witnesses = []Witness{must(ParseWitness("http://192.0.2.1:1", w.vkey))}
		b.config.Terms.Every = 1
		b.config.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		l := b.open()
		for i := range 30 {
			b.write(l, entry(i))
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if s := l.Status(); s.Unsealed > 1 || s.Unwitnessed < 2 {
			t.Errorf("status = %+v", s)
		}
		start := time.Now()
		b.close(l)
		if waited := time.Since(start); waited != lastWait {
			t.Errorf("Close waited %s, want lastWait", waited)
		}
		l = b.open()
		start = time.Now()
		if err := l.Close(0); err != nil || time.Since(start) > 0 {
			t.Errorf("Close of a reload waited %s: %v", time.Since(start), err)
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
