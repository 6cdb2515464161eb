package evidence_test

import (
	"crypto/rand"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/crawlgate/crawlgate/evidence"
)

// Anyone with the lines of a log, its public key and a signed checkpoint can verify all lines.
func ExampleTree() {
	const id = "gw1.example/access/1"
	key, public, err := note.GenerateKey(rand.Reader, id)
	if err != nil {
		panic(err)
	}
	signer, err := note.NewSigner(key)
	if err != nil {
		panic(err)
	}

	// The gateway seals its lines, and signs a checkpoint of the tree over them.
	var log strings.Builder
	var tree evidence.Tree
	for i, entry := range []string{`{"status":200}`, `{"status":403}`, `{"status":200}`} {
		line := evidence.Splice([]byte(entry), id, int64(i))
		log.Write(line)
		tree.Append(tlog.RecordHash(line[:len(line)-1]))
	}
	signed, err := note.Sign(&note.Note{Text: evidence.CheckpointText(id, tree.Size(), tree.Root())}, signer)
	if err != nil {
		panic(err)
	}

	verify := func(log string) bool {
		verifier, err := note.NewVerifier(public)
		if err != nil {
			panic(err)
		}
		checkpoint, err := evidence.ParseCheckpoint(signed, note.VerifierList(verifier))
		if err != nil {
			panic(err)
		}
		var tree evidence.Tree
		for line := range strings.Lines(log) {
			tree.Append(tlog.RecordHash([]byte(strings.TrimSuffix(line, "\n"))))
		}
		return tree.Size() == checkpoint.Size && tree.Root() == checkpoint.Root
	}
	fmt.Print(log.String())
	fmt.Println(verify(log.String()), verify(strings.Replace(log.String(), "403", "200", 1)))
	// Output:
	// {"status":200,"log":"gw1.example/access/1","seq":0}
	// {"status":403,"log":"gw1.example/access/1","seq":1}
	// {"status":200,"log":"gw1.example/access/1","seq":2}
	// true false
}

// The seal names the log and the number of a line.
func ExampleReadSeal() {
	id, seq, ok := evidence.ReadSeal([]byte(`{"status":200,"log":"gw1.example/access/1","seq":1234567}` + "\n"))
	fmt.Println(id, seq, ok)
	// Output: gw1.example/access/1 1234567 true
}
