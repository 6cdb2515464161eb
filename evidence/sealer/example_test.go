package sealer_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/crawlgate/crawlgate/evidence"
	"github.com/crawlgate/crawlgate/evidence/sealer"
)

// An auditor with the public key verifies that a line is in the log, without any other line.
func Example() {
	folder, err := os.MkdirTemp("", "sealed")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	file, state := filepath.Join(folder, "access.log"), filepath.Join(folder, "evidence")

	// The gateway writes and seals.
	log, err := sealer.Open(sealer.Config{
		Gateway: "gw1.example", Name: "access", File: file, State: state,
		Open: func() (io.WriteCloser, error) {
			return os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		},
		Terms: evidence.Terms{Every: 1, Lines: 1000},
	})
	if err != nil {
		panic(err)
	}
	key := log.Status().VKey
	if _, err := log.Write([]byte(`{"status":200,"request":{"uri":"/"}}` + "\n")); err != nil {
		panic(err)
	}
	if err := log.Close(0); err != nil {
		panic(err)
	}

	// The state folder has a proof of each line. The first lines are the sealer's notices.
	kept, err := sealer.ReadState(state, "access", 0)
	if err != nil {
		panic(err)
	}
	proof, err := kept.Prove(2, []string{file})
	if err != nil {
		panic(err)
	}

	// The auditor checks the signature of the checkpoint, and then the line.
	verifier, err := note.NewVerifier(key)
	if err != nil {
		panic(err)
	}
	checkpoint, err := evidence.ParseCheckpoint([]byte(proof.Checkpoint), note.VerifierList(verifier))
	if err != nil {
		panic(err)
	}
	err = tlog.CheckRecord(proof.Hashes, checkpoint.Size, checkpoint.Root, proof.Seq, tlog.RecordHash([]byte(proof.Line)))
	fmt.Println(checkpoint.LogID, checkpoint.Size, err)
	fmt.Println(proof.Line)
	// Output:
	// gw1.example/access/1 4 <nil>
	// {"status":200,"request":{"uri":"/"},"log":"gw1.example/access/1","seq":2}
}
