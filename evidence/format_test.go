package evidence

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math"
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
		if id, err := ParseLogID(s); err != nil || id.String() != s {
			t.Errorf("ParseLogID(%s) = %v, %v", s, id, err)
		}
	}
	for _, s := range []string{"", "a", "a/b", "a/b/0", "a/b/01", "a/b/-1", "/b/1", "a//1", "a b/c/1", "a+b/c/1", "a/.c/1", `a"/c/1`, "a/b:c/1", "a/b/1 "} {
		if id, err := ParseLogID(s); err == nil {
			t.Errorf("ParseLogID(%q) = %v, want an error", s, id)
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
			t.Errorf("ReadSeal(%q) = %q, %d, %t", got, readID, seq, ok)
		}
	}
	for _, line := range []string{
		``, `{}`, `}`, `{"seq":1}`, `{"log":"g/a/1","seq":}`, `{"log":"g/a/1","seq":01}`, `{"log":"g/a/1","seq":-1}`, `{"log":"g/a/1","seq": 1}`,
		`{"log":"g/a/1","seq":1} `, `{"log":"g/a","seq":1}`, `{"a":{"log":"g/a/1","seq":1}}`, `{"a":1 "log":"g/a/1","seq":1}`,
		`{"a":"\"log":"g/a/1","seq":1}`, `{"log":"g/a/1","seq":1,"b":2}`, `"log":"g/a/1","seq":1}`, `{"log":"g/a/1","seq":99999999999999999999}`,
	} {
		if id, seq, ok := ReadSeal([]byte(line)); ok && !strings.Contains(line, `\"`) {
			t.Errorf("ReadSeal of an unsealed line %s = %s, %d, true", line, id, seq)
		}
	}
}

// FuzzSeal checks that ReadSeal reads only seals that Splice writes, and the seal of each sealed
// line.
func FuzzSeal(f *testing.F) {
	f.Add(`{"a":1}`, int64(0))
	f.Add(`{"log":"g/a/1","seq":1}`, int64(1<<62))
	f.Add(`{"a":"}","log":"g/a/1","seq":1}`, int64(5))
	f.Add(`{0{}`, int64(1)) // not JSON, but sealed
	f.Fuzz(func(t *testing.T, line string, seq int64) {
		const id = "gw.example/access/3"
		seq &= 1<<63 - 1
		sealed := Splice([]byte(line), id, seq)
		if !bytes.HasSuffix(sealed, []byte("\n")) {
			t.Errorf("sealed line %q has no newline", sealed)
		}
		if gotID, got, ok := ReadSeal(sealed); strings.HasSuffix(string(sealed), "}\n") && len(sealed) > 2 && sealed[0] == '{' && (!ok || gotID != id || got != seq) {
			t.Errorf("ReadSeal(%q) = %q, %d, %t", sealed, gotID, got, ok)
		}
		gotID, got, ok := ReadSeal([]byte(line))
		if !ok {
			return
		}
		suffix := fmt.Sprintf(`"log":"%s","seq":%d}`, gotID, got)
		if rest, found := strings.CutSuffix(strings.TrimSuffix(line, "\n"), suffix); !found || rest != "{" && !strings.HasSuffix(rest, ",") {
			t.Errorf("ReadSeal(%q) = %q, %d, true, but Splice did not write it", line, gotID, got)
		}
	})
}

// TestTree checks that the roots equal the ones of package tlog. A client of tiles that knows only
// the root finds every leaf in the tiles on disk, and the tree can continue from them (C2SP
// tlog-tiles).
func TestTree(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stored := map[int64]tlog.Hash{}
	reader := tlog.HashReaderFunc(func(indexes []int64) (hashes []tlog.Hash, err error) {
		for _, i := range indexes {
			hashes = append(hashes, stored[i])
		}
		return hashes, nil
	})
	write := func(tile Tile) {
		name := filepath.Join(dir, tile.Path())
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, tile.Data, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	grown := Tree{Full: write}
	const most = TileSize*TileSize + 3*TileSize + 7
	var before Tree
	for i := range int64(most) {
		line := fmt.Append(nil, i)
		hashes, _ := tlog.StoredHashes(i, line, reader)
		for k, h := range hashes {
			stored[tlog.StoredHashIndex(0, i)+int64(k)] = h
		}
		if grown.Append(tlog.RecordHash(line)); i%1237 > 0 && i < most-300 {
			continue
		}
		size := i + 1
		want, _ := tlog.TreeHash(size, reader)
		if grown.Size() != size || grown.Root() != want || before.Size() > 0 && before.Root() == want {
			t.Fatalf("wrong root of %d leaves", size)
		}
		for _, tile := range grown.Edge(before.Size()) {
			write(tile)
		}
		client := tlog.TileHashReader(tlog.Tree{N: size, Hash: want}, Tiles(dir))
		for _, n := range []int64{0, size / 2, before.Size(), i} {
			at := tlog.StoredHashIndex(0, n)
			if got, err := client.ReadHashes([]int64{at}); err != nil || got[0] != stored[at] {
				t.Fatalf("reading leaf %d of %d: %v", n, size, err)
			}
		}
		loaded, err := Tiles(dir).Tree(size)
		if err != nil || loaded.Size() != size || loaded.Root() != want {
			t.Fatalf("loading the tree of %d leaves: %v", size, err)
		}
		before = grown.Clone()
	}
	for seq := int64(0); seq < most; {
		leaves, err := Tiles(dir).Hashes(0, seq)
		if err != nil || leaves[0] != stored[tlog.StoredHashIndex(0, seq)] {
			t.Fatalf("reading leaves from %d: %v", seq, err)
		}
		seq += int64(len(leaves))
	}
	if _, err := Tiles(dir).Hashes(0, most); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("reading a leaf after the end: got %v, want fs.ErrNotExist", err)
	}
	// If a full disk truncated the narrowest tile with the leaf, a wider one has it too.
	cut := Tile{Tile: tlog.Tile{H: TileHeight, N: most / TileSize, W: 3}}
	if err := os.Truncate(filepath.Join(dir, cut.Path()), 2*tlog.HashSize+1); err != nil {
		t.Fatal(err)
	}
	if leaves, err := Tiles(dir).Hashes(0, most-most%TileSize+2); err != nil || leaves[0] != stored[tlog.StoredHashIndex(0, most-most%TileSize+2)] {
		t.Errorf("reading a leaf whose narrowest tile was truncated: %v", err)
	}
	// The hashes over leaves replace leaves that are gone.
	var skipped Tree
	for n := range int64(most / TileSize) {
		over, err := Tiles(dir).Hashes(1, n)
		if err != nil {
			t.Fatal(err)
		}
		skipped.Skip(over[0])
	}
	if want, _ := tlog.TreeHash(skipped.Size(), reader); skipped.Root() != want {
		t.Error("wrong root over deleted leaves")
	}
	if err := os.RemoveAll(filepath.Join(dir, "tile", "0")); err != nil {
		t.Fatal(err)
	}
	if _, err := Tiles(dir).Hashes(0, 3); !errors.Is(err, fs.ErrNotExist) || strings.Contains(err.Error(), dir) {
		t.Errorf("reading a deleted leaf: got %v, want fs.ErrNotExist without the folder", err)
	}
}

// TestTilePath checks that names are like in C2SP tlog-tiles, without the height.
func TestTilePath(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		tile tlog.Tile
		want string
	}{
		{tlog.Tile{H: 8, N: 1234067, W: 256}, "tile/0/x001/x234/067"},
		{tlog.Tile{H: 8, L: 3, N: 7, W: 12}, "tile/3/007.p/12"},
		{tlog.Tile{H: 8, L: 8, N: 8, W: 256}, "tile/8/008"},
	} {
		if got := (Tile{Tile: tt.tile}).Path(); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.tile, got, tt.want)
		}
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

func TestParseCheckpoint(t *testing.T) {
	t.Parallel()
	root := tlog.RecordHash(nil)
	good := CheckpointText("g/a/1", 5, root)
	for text, ok := range map[string]bool{
		good: true, CheckpointText("g/a/2", 5, root): false, strings.Replace(good, "5", "05", 1): false, good + "extension\n": false,
		"g/a/1\n5\n": false, "g/a/1\n5\nAAAA\n": false, strings.Replace(good, "5", "-5", 1): false,
	} {
		signed, known := signedBy(t, "g/a/1", text)
		h, err := ParseCheckpoint(signed, known)
		if (err == nil) != ok || ok && (h.Size != 5 || h.Root != root || h.LogID != "g/a/1" || !bytes.Equal(h.Note, signed)) {
			t.Errorf("ParseCheckpoint of %q = %+v, %v", text, h, err)
		}
		if _, err := ParseCheckpoint(signed, note.VerifierList()); err == nil || !strings.Contains(err.Error(), "it wants the key g/a/1+") {
			t.Errorf("ParseCheckpoint of %q without a key: got %v", text, err)
		}
		signed[len(text)/2]++
		if _, err := ParseCheckpoint(signed, known); err == nil {
			t.Errorf("ParseCheckpoint accepts %q with a changed byte", text)
		}
	}
}

// FuzzReadCheckpoints checks that each checkpoint that is read was signed, and that a damaged end
// does not hide the checkpoints before it.
func FuzzReadCheckpoints(f *testing.F) {
	signed, known := signedBy(f, "g/a/1", CheckpointText("g/a/1", 5, tlog.RecordHash(nil)))
	block := string(signed) + CheckpointEnd
	f.Add("")
	f.Add(block)
	f.Add(block[:30])
	f.Add("--\n--\n")
	f.Fuzz(func(t *testing.T, rest string) {
		good, bad := 0, 0
		for h, err := range ReadCheckpoints(strings.NewReader(block+rest), known) {
			if err != nil {
				bad++
				continue
			}
			if good++; !bytes.Equal(h.Note, signed) && !strings.Contains(rest, "g/a/1") {
				t.Errorf("read a checkpoint that was not signed: %q", h.Note)
			}
		}
		if good == 0 || rest == "" && bad > 0 {
			t.Errorf("read %d good and %d bad checkpoints of %q", good, bad, rest)
		}
	})
}

// TestReadClaim checks that the claim of a note is read without a key, and that cosignatures are
// removed.
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
	if err != nil || err2 != nil || StripCosignatures(string(cosigned)) != string(bare) || StripCosignatures(string(bare)) != string(bare) {
		t.Errorf("StripCosignatures = %q of %q: %v, %v", StripCosignatures(string(cosigned)), cosigned, err, err2)
	}
	if h, err := ReadClaim(string(bare)); err != nil || h.LogID != "g/a/1" || h.Size != 7 || h.Root != (tlog.Hash{1}) || string(h.Note) != string(bare) {
		t.Errorf("ReadClaim = %+v, %v", h, err)
	}
	for _, text := range []string{"", "\n\n\n", n.Text, n.Text + "\n", StripCosignatures(""), strings.Replace(string(bare), "g/a/1\n7", "g/a/1\n07", 1), string(bare) + strings.Repeat("— w AAAAAAAA\n", 200)} {
		if h, err := ReadClaim(text); err == nil {
			t.Errorf("ReadClaim(%q) = %+v, want an error", text, h)
		}
	}
}

// TestLongestSeal checks that the seal with the longest names and numbers is read, after a long
// line and after a short one.
func TestLongestSeal(t *testing.T) {
	t.Parallel()
	id := LogID{strings.Repeat("g", 100), strings.Repeat("l", 100), maxGeneration}
	if err := id.Check(); err != nil {
		t.Fatal(err)
	}
	for _, entry := range []string{"{}", `{"a":1}`, `{"a":"` + strings.Repeat("x", 2000) + `"}`} {
		line := Splice([]byte(entry), id.String(), math.MaxInt64)
		if got, seq, ok := ReadSeal(line); !ok || got != id.String() || seq != math.MaxInt64 {
			t.Errorf("ReadSeal of %d bytes = %q, %d, %t", len(line), got, seq, ok)
		}
	}
	line := `{"log":"gw1/access/1","seq":1,"a":"` + strings.Repeat("x", maxSeal) + `"}`
	if _, _, ok := ReadSeal([]byte(line)); ok {
		t.Error("ReadSeal reads members of the entry as a seal")
	}
}
