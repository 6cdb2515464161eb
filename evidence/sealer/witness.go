package sealer

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	cosign "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/crawlgate/crawlgate/evidence"
)

// Witness cosigns checkpoints of trees that only grow (C2SP tlog-witness v1.0.0).
type Witness struct {
	// URL is the prefix of the witness's endpoints.
	URL      string
	Verifier note.Verifier
}

// ParseWitness reads a witness's URL and its key, which signs cosignatures (C2SP tlog-cosignature
// v1.0.1) with Ed25519 or ML-DSA-44.
func ParseWitness(url, vkey string) (Witness, error) {
	verifier, err := cosign.NewVerifierForCosignatureV1(vkey)
	if err != nil {
		return Witness{}, fmt.Errorf("key of witness %s: %w", url, err)
	}
	return Witness{url, verifier}, nil
}

// WitnessStatus is the state of a witness.
type WitnessStatus struct {
	// Size is the number of lines in the tree that it last cosigned.
	Size int64 `json:"size"`
	// Time is when that was.
	Time time.Time `json:"time,omitzero"`
	// Error is the error of the last request.
	Error string `json:"error,omitempty"`
}

const (
	witnessTimeout = 10 * time.Second
	maxWitness     = 64 << 10 // bytes of an answer
)

// cosignLoop has each new checkpoint cosigned until ctx ends.
func (l *Log) cosignLoop(ctx context.Context) {
	cosigned := true
	for {
		select {
		case <-ctx.Done():
			return
		case <-l.cosign:
		}
		cosigned = l.cosignNewest(ctx, cosigned)
	}
}

// cosignNewest has the newest checkpoint cosigned, reports changes, and returns whether it was
// cosigned.
func (l *Log) cosignNewest(ctx context.Context, before bool) (cosigned bool) {
	l.mu.Lock()
	checkpoint := l.newest
	l.mu.Unlock()
	signatures, err := l.askWitnesses(ctx, checkpoint)
	cosigned = len(signatures) > 0
	if cosigned { // keep the ones that came before ctx ended
		if err := l.keepCosigned(checkpoint, signatures); err != nil {
			l.config.Report(Event{"cosigned checkpoint cannot be kept", err.Error(), true})
		}
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
	case cosigned && !before:
		l.config.Report(Event{"checkpoints are cosigned again", errorText(err), false})
	case !cosigned && before:
		l.config.Report(Event{"checkpoint is cosigned by no witness", errorText(err), true})
	}
	if !cosigned {
		l.mu.Lock()
		l.unwitnessed++
		l.mu.Unlock()
	}
	return cosigned
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// askWitnesses has a checkpoint cosigned by all witnesses in parallel.
func (l *Log) askWitnesses(ctx context.Context, checkpoint evidence.Checkpoint) (signatures [][]byte, err error) {
	if len(checkpoint.Note) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, witnessTimeout)
	defer cancel()
	var each sync.WaitGroup
	for _, w := range l.config.Witnesses {
		each.Go(func() {
			l.mu.Lock()
			status := l.witnesses[w.Verifier.Name()]
			l.mu.Unlock()
			signature, askErr := l.askWitness(ctx, w, &status, checkpoint)
			l.mu.Lock()
			defer l.mu.Unlock()
			l.witnesses[w.Verifier.Name()] = status
			if askErr != nil {
				err = errors.Join(err, fmt.Errorf("witness %s: %w", w.URL, askErr))
				return
			}
			signatures = append(signatures, signature)
		})
	}
	each.Wait()
	return signatures, err
}

// askWitness has a checkpoint cosigned. It asks again if the witness knows the tree at another size
// than expected, as after each start.
func (l *Log) askWitness(ctx context.Context, w Witness, status *WitnessStatus, checkpoint evidence.Checkpoint) (signature []byte, err error) {
	defer func() { status.Error = errorText(err) }()
	for range 2 {
		if status.Size > checkpoint.Size {
			return nil, fmt.Errorf("it knows %d lines, more than the %d of the log: the log was set back", status.Size, checkpoint.Size)
		}
		body, err := l.request(status.Size, checkpoint)
		if err != nil {
			return nil, err
		}
		code, answer, err := l.post(ctx, strings.TrimSuffix(w.URL, "/")+"/add-checkpoint", body)
		if err != nil {
			return nil, err
		}
		if code == http.StatusConflict {
			size, err := strconv.ParseUint(strings.TrimSpace(string(answer)), 10, 63)
			if err != nil {
				return nil, fmt.Errorf("status 409 without a size: %.100q", answer)
			}
			status.Size = int64(size)
			continue
		}
		if code != http.StatusOK {
			return nil, fmt.Errorf("status %d: %.200q", code, answer)
		}
		if signature, err = verified(w, checkpoint, answer); err == nil {
			status.Size, status.Time = checkpoint.Size, time.Now()
		}
		return signature, err
	}
	return nil, errors.New("status 409 again, with the size that it gave")
}

// request returns the body of add-checkpoint: the size that the witness knows, the proof that the
// tree has only grown since, and the checkpoint.
func (l *Log) request(old int64, checkpoint evidence.Checkpoint) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "old %d\n", old)
	if old > 0 && old < checkpoint.Size {
		tree := tlog.Tree{N: checkpoint.Size, Hash: checkpoint.Root}
		proof, err := tlog.ProveTree(checkpoint.Size, old, tlog.TileHashReader(tree, evidence.Tiles(l.folder)))
		if err != nil {
			return nil, fmt.Errorf("proving that the tree has grown from %d to %d: %w", old, checkpoint.Size, err)
		}
		for _, h := range proof {
			b.WriteString(base64.StdEncoding.EncodeToString(h[:]) + "\n")
		}
	}
	b.WriteString("\n")
	b.Write(checkpoint.Note)
	return b.Bytes(), nil
}

func (l *Log) post(ctx context.Context, url string, body []byte) (status int, answer []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	resp, err := l.client.Do(r)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }() // it was only read
	answer, err = io.ReadAll(io.LimitReader(resp.Body, maxWitness))
	return resp.StatusCode, answer, err
}

// verified returns the witness's signature from its answer.
func verified(w Witness, checkpoint evidence.Checkpoint, answer []byte) ([]byte, error) {
	text, _, _ := bytes.Cut(checkpoint.Note, []byte("\n\n"))
	n, err := note.Open(bytes.Join([][]byte{text, answer}, []byte("\n\n")), note.VerifierList(w.Verifier))
	if err != nil {
		return nil, fmt.Errorf("its cosignature: %w", err)
	}
	return fmt.Appendf(nil, "— %s %s\n", n.Sigs[0].Name, n.Sigs[0].Base64), nil
}

// keepCosigned appends a checkpoint again, with its cosignatures.
func (l *Log) keepCosigned(checkpoint evidence.Checkpoint, signatures [][]byte) error {
	checkpoint.Note = append(bytes.Clone(checkpoint.Note), bytes.Join(signatures, nil)...)
	l.flushing.Lock()
	err := l.keepCheckpoint(checkpoint)
	l.flushing.Unlock()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.newest.Size == checkpoint.Size {
		l.newest.Note = checkpoint.Note
	}
	return nil
}
