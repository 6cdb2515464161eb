package evidence

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

func TestIdentity(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"gw1.acme.example/access/1", "a/b/access/12"} {
		if id, err := ParseIdentity(s); err != nil || id.String() != s {
			t.Errorf("%s: %v, %v", s, id, err)
		}
	}
	for _, s := range []string{"", "a", "a/b", "a/b/0", "a/b/01", "a/b/-1", "/b/1", "a//1", "a b/c/1", "a+b/c/1", "a/.c/1", `a"/c/1`, "a/b:c/1", "a/b/1 "} {
		if id, err := ParseIdentity(s); err == nil {
			t.Errorf("%q is %v", s, id)
		}
	}
}

func TestSplice(t *testing.T) {
	t.Parallel()
	const id = "g/a/1"
	for _, tt := range []struct{ line, want string }{
		{`{"a":1}`, `{"a":1,"log":"g/a/1","seq":7}`},
		{`{"a":{"b":{}}}`, `{"a":{"b":{}},"log":"g/a/1","seq":7}`},
		{`{}`, `{"log":"g/a/1","seq":7}`},
		{`{ }`, `{"log":"g/a/1","seq":7}`},
		{"{\"a\":1 }\n", `{"a":1,"log":"g/a/1","seq":7}`},
		{"text", "text"},
		{"", ""},
		{"{", "{"},
		{"}", "}"},
		{`[{}]`, `[{}]`},
	} {
		got := string(Splice([]byte(tt.line), id, 7))
		if got != tt.want+"\n" {
			t.Errorf("%q: got %q, want %q", tt.line, got, tt.want)
		}
		if readID, seq, ok := ReadSeal([]byte(got)); ok != strings.Contains(tt.want, "seq") || ok && (readID != id || seq != 7) {
			t.Errorf("%q: read %q, %d, %t", got, readID, seq, ok)
		}
	}
	for _, line := range []string{
		``, `{}`, `}`, `{"seq":1}`, `{"log":"g/a/1","seq":}`, `{"log":"g/a/1","seq":01}`, `{"log":"g/a/1","seq":-1}`, `{"log":"g/a/1","seq": 1}`,
		`{"log":"g/a/1","seq":1} `, `{"log":"g/a","seq":1}`, `{"a":{"log":"g/a/1","seq":1}}`, `{"a":1 "log":"g/a/1","seq":1}`,
		`{"a":"\"log":"g/a/1","seq":1}`, `{"log":"g/a/1","seq":1,"b":2}`, `"log":"g/a/1","seq":1}`, `{"log":"g/a/1","seq":99999999999999999999}`,
	} {
		if id, seq, ok := ReadSeal([]byte(line)); ok && !strings.Contains(line, `\"`) {
			t.Errorf("%s has the seal %s %d", line, id, seq)
		}
	}
}

// FuzzSeal: a seal that is read is one that Splice writes, and a line that was sealed has its seal.
func FuzzSeal(f *testing.F) {
	f.Add(`{"a":1}`, int64(0))
	f.Add(`{"log":"g/a/1","seq":1}`, int64(1<<62))
	f.Add(`{"a":"}","log":"g/a/1","seq":1}`, int64(5))
	f.Add(`{0{}`, int64(1)) // no JSON, and yet sealed
	f.Fuzz(func(t *testing.T, line string, seq int64) {
		const id = "gw.example/access/3"
		seq &= 1<<63 - 1
		sealed := Splice([]byte(line), id, seq)
		if !bytes.HasSuffix(sealed, []byte("\n")) {
			t.Errorf("%q has no end", sealed)
		}
		if gotID, got, ok := ReadSeal(sealed); strings.HasSuffix(string(sealed), "}\n") && len(sealed) > 2 && sealed[0] == '{' && (!ok || gotID != id || got != seq) {
			t.Errorf("%q: %q, %d, %t", sealed, gotID, got, ok)
		}
		gotID, got, ok := ReadSeal([]byte(line))
		if !ok {
			return
		}
		suffix := fmt.Sprintf(`"log":"%s","seq":%d}`, gotID, got)
		if rest, found := strings.CutSuffix(strings.TrimSuffix(line, "\n"), suffix); !found || rest != "{" && !strings.HasSuffix(rest, ",") {
			t.Errorf("%q has the seal %q %d", line, gotID, got)
		}
	})
}

// TestEdge: roots are those of package tlog, at all sizes, and leaves on disk give the same edge and nodes.
func TestEdge(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stored := map[int64]tlog.Hash{}
	reader := tlog.HashReaderFunc(func(indexes []int64) (hashes []tlog.Hash, err error) {
		for _, i := range indexes {
			hashes = append(hashes, stored[i])
		}
		return hashes, nil
	})
	var e Edge
	var data []byte
	for i := range int64(3000) {
		if want, _ := tlog.TreeHash(i, reader); i > 0 && e.Root() != want {
			t.Fatalf("root of %d leaves", i)
		}
		line := fmt.Append(nil, i)
		hashes, _ := tlog.StoredHashes(i, line, reader)
		for k, h := range hashes {
			stored[tlog.StoredHashIndex(0, i)+int64(k)] = h
		}
		h := tlog.RecordHash(line)
		e.Append(h)
		data = append(data, h[:]...)
	}
	if err := os.WriteFile(filepath.Join(dir, LeavesFile(0)), data, 0o600); err != nil {
		t.Fatal(err)
	}
	leaves := NewLeaves(dir)
	if n, err := leaves.Len(); n != 3000 || err != nil {
		t.Errorf("%d leaves, %v", n, err)
	}
	for size := int64(1); size <= 3000; size += 37 {
		edge, err := leaves.Edge(size)
		want, _ := tlog.TreeHash(size, reader)
		got, err2 := tlog.TreeHash(size, leaves)
		if edge.Root() != want || edge.Size() != size || got != want || err != nil || err2 != nil {
			t.Fatalf("size %d: %v, %v", size, err, err2)
		}
		proof, err := tlog.ProveTree(3000, size, leaves)
		if err != nil || tlog.CheckTree(proof, 3000, e.Root(), size, want) != nil {
			t.Fatalf("proof from %d: %v", size, err)
		}
	}
	if _, err := leaves.Edge(3001); err == nil {
		t.Error("there are more leaves than were written")
	}
}

// TestOldLeavesGone: with its hash beside, a full file of leaves can go.
func TestOldLeavesGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var e Edge
	var last []byte
	for i := range int64(LeavesPerFile + 5) {
		h := tlog.Hash{byte(i), byte(i >> 8), byte(i >> 16)}
		if e.Append(h); i >= LeavesPerFile {
			last = append(last, h[:]...)
		}
	}
	full := e.Full()
	os.WriteFile(filepath.Join(dir, SubtreesFile), full[:], 0o600)
	os.WriteFile(filepath.Join(dir, LeavesFile(1)), last, 0o600)
	leaves := NewLeaves(dir)
	got, err := leaves.Edge(e.Size())
	if err != nil || got.Root() != e.Root() {
		t.Errorf("edge of %d leaves: %v", got.Size(), err)
	}
	if root, err := tlog.TreeHash(e.Size(), leaves); err != nil || root != e.Root() {
		t.Error(err)
	}
	if n, _ := leaves.Len(); n != e.Size() {
		t.Errorf("%d leaves", n)
	}
	if _, err := leaves.Hash(3); !os.IsNotExist(unwrapAll(err)) {
		t.Errorf("a leaf that is gone: %v", err)
	}
}

func unwrapAll(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok || os.IsNotExist(err) {
			return err
		}
		err = u.Unwrap()
	}
}

func signedBy(tb testing.TB, id, text string) (signed []byte, known note.Verifiers) {
	tb.Helper()
	skey, vkey, err := note.GenerateKey(rand.Reader, id)
	if err != nil {
		tb.Fatal(err)
	}
	signer, _ := note.NewSigner(skey)
	verifier, _ := note.NewVerifier(vkey)
	if signed, err = note.Sign(&note.Note{Text: text}, signer); err != nil {
		tb.Fatal(err)
	}
	return signed, note.VerifierList(verifier)
}

func TestParseHead(t *testing.T) {
	t.Parallel()
	root := tlog.RecordHash(nil)
	good := CheckpointText("g/a/1", 5, root)
	for text, ok := range map[string]bool{
		good: true, CheckpointText("g/a/2", 5, root): false, strings.Replace(good, "5", "05", 1): false, good + "extension\n": false,
		"g/a/1\n5\n": false, "g/a/1\n5\nAAAA\n": false, strings.Replace(good, "5", "-5", 1): false,
	} {
		signed, known := signedBy(t, "g/a/1", text)
		h, err := ParseHead(signed, known)
		if (err == nil) != ok || ok && (h.Size != 5 || h.Root != root || h.Identity != "g/a/1" || !bytes.Equal(h.Note, signed)) {
			t.Errorf("%q: %+v, %v", text, h, err)
		}
		signed[len(text)/2]++
		if _, err := ParseHead(signed, known); err == nil {
			t.Errorf("%q with another byte", text)
		}
	}
}

// FuzzReadHeads: what is read was signed, and the good checkpoints before a bad end are there.
func FuzzReadHeads(f *testing.F) {
	signed, known := signedBy(f, "g/a/1", CheckpointText("g/a/1", 5, tlog.RecordHash(nil)))
	block := string(signed) + HeadEnd
	f.Add("")
	f.Add(block)
	f.Add(block[:30])
	f.Add("--\n--\n")
	f.Fuzz(func(t *testing.T, rest string) {
		good, bad := 0, 0
		for h, err := range ReadHeads(strings.NewReader(block+rest), known) {
			if err != nil {
				bad++
				continue
			}
			if good++; !bytes.Equal(h.Note, signed) && !strings.Contains(rest, "g/a/1") {
				t.Errorf("%q", h.Note)
			}
		}
		if good == 0 || rest == "" && bad > 0 {
			t.Errorf("%d good, %d bad of %q", good, bad, rest)
		}
	})
}

// TestReadClaim: what a note claims is read without a key, and a note with cosignatures is made short.
func TestReadClaim(t *testing.T) {
	t.Parallel()
	secret, _, err := note.GenerateKey(rand.Reader, "g/a/1")
	other, _, err2 := note.GenerateKey(rand.Reader, "witness")
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	own, err := note.NewSigner(secret)
	witness, err2 := note.NewSigner(other)
	if err != nil || err2 != nil {
		t.Fatal(err, err2)
	}
	n := &note.Note{Text: CheckpointText("g/a/1", 7, tlog.Hash{1})}
	bare, err := note.Sign(n, own)
	cosigned, err2 := note.Sign(n, own, witness)
	if err != nil || err2 != nil || Bare(string(cosigned)) != string(bare) || Bare(string(bare)) != string(bare) {
		t.Errorf("%q of %q: %v, %v", Bare(string(cosigned)), cosigned, err, err2)
	}
	if h, err := ReadClaim(string(bare)); err != nil || h.Identity != "g/a/1" || h.Size != 7 || h.Root != (tlog.Hash{1}) || string(h.Note) != string(bare) {
		t.Errorf("%+v, %v", h, err)
	}
	for _, text := range []string{"", "\n\n\n", n.Text, n.Text + "\n", Bare(""), strings.Replace(string(bare), "g/a/1\n7", "g/a/1\n07", 1), string(bare) + strings.Repeat("— w AAAAAAAA\n", 200)} {
		if h, err := ReadClaim(text); err == nil {
			t.Errorf("%q is %+v", text, h)
		}
	}
}
