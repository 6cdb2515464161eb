package seal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/crawlgate/crawlgate/evidence"
)

// Config says where the evidence is.
type Config struct {
	// Folders are the folders of evidence that the gateways keep.
	Folders []string
	// Keys are verifier keys that were kept elsewhere, as the command evidence key prints them. A key
	// holds for all generations of a log. With none, the keys in Folders are believed.
	Keys []string
	// Heads are files of checkpoints that were kept elsewhere.
	Heads []string
}

// New reads the evidence and checks the leaves against the signed checkpoints. What they contradict
// goes to report, as all findings do; an error of report ends the check.
func New(ctx context.Context, cfg Config, report func(Finding) error) (*Checker, error) {
	keys := &keyring{beside: make(map[string][]byte)}
	c := &Checker{trees: make(map[string]*tree), series: make(map[int]*series), keys: keys, report: report}
	for _, text := range cfg.Keys {
		if err := keys.give(text); err != nil {
			return nil, err
		}
	}
	for _, folder := range cfg.Folders {
		if err := c.folder(ctx, folder, keys); err != nil {
			return nil, err
		}
	}
	if len(c.trees) == 0 {
		return nil, fmt.Errorf("reading evidence: there is none in %s", strings.Join(cfg.Folders, ", "))
	}
	for _, name := range cfg.Heads {
		if err := c.heads(ctx, name, keys, true); err != nil {
			return nil, err
		}
	}
	for _, t := range c.sorted() {
		if err := t.settle(); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// folder reads the generations of all logs in a folder of evidence.
func (c *Checker) folder(ctx context.Context, folder string, keys *keyring) error {
	names, err := filepath.Glob(filepath.Join(folder, "*", "*", "vkey"))
	if err != nil {
		return fmt.Errorf("reading evidence: %w", err)
	}
	slices.SortFunc(names, func(a, b string) int { return generation(a) - generation(b) })
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return fmt.Errorf("reading evidence: %w", err)
		}
		key := strings.TrimSpace(string(text))
		id, err := keys.lieBeside(key)
		if err != nil {
			return fmt.Errorf("reading evidence: %s: %w", name, err)
		}
		if c.trees[id] != nil {
			return fmt.Errorf("reading evidence: %s: there are two folders of %s", name, id)
		}
		t := c.tree(id)
		t.leaves = evidence.NewLeaves(filepath.Dir(name))
		t.totals.Key, t.totals.KeyGiven = key, len(keys.given) > 0
		if err := c.heads(ctx, filepath.Join(filepath.Dir(name), "heads"), keys, false); err != nil {
			return err
		}
	}
	return nil
}

// generation is the number in the path of a file of a generation.
func generation(name string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
	return n
}

// heads takes each checkpoint of a file: the gateway's own, or one that was kept elsewhere.
func (c *Checker) heads(ctx context.Context, name string, keys *keyring, kept bool) error {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) && !kept {
		return nil // the writer was stopped before its first one
	} else if err != nil {
		return fmt.Errorf("reading checkpoints: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	unsigned, n := false, int64(0)
	for h, err := range evidence.ReadHeads(headsOf(f, kept), keys) {
		n++
		at := Place{name, n}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, evidence.ErrCut) && !kept:
			return nil // in a crash
		case err != nil && unsigned: // one finding a file says it
		case err != nil:
			unsigned = true
			if err := c.report(Finding{at, Head, err.Error()}); err != nil {
				return err
			}
		default:
			if err := c.checkpoint(h, at, kept); err != nil {
				return err
			}
		}
	}
	return nil
}

// headsOf gives a file of checkpoints the end that a single one, as it is printed, has not.
func headsOf(f io.Reader, kept bool) io.Reader {
	if !kept {
		return f
	}
	const most = 256 << 20
	text, _ := io.ReadAll(io.LimitReader(f, most)) // an error is seen as a checkpoint that is cut off
	if len(text) > 0 && !bytes.HasSuffix(text, []byte(evidence.HeadEnd)) {
		text = append(text, evidence.HeadEnd...)
	}
	return bytes.NewReader(text)
}

// checkpoint holds a signed checkpoint against the leaves.
func (c *Checker) checkpoint(h evidence.Head, at Place, kept bool) error {
	t := c.trees[h.Identity]
	if t == nil {
		t = c.tree(h.Identity) // its folder is gone, or not given
	}
	t.totals.Checkpoints++
	t.totals.KeptElsewhere = t.totals.KeptElsewhere || kept
	t.size = max(t.size, h.Size)
	root, ok, err := t.root(h.Size)
	switch {
	case err != nil:
		return fmt.Errorf("reading evidence of %s: %w", h.Identity, err)
	case ok && root == h.Root:
		t.confirmed = max(t.confirmed, h.Size)
		return nil
	case h.Size <= t.gone: // a later one confirms the hash over the leaves that are gone
		return nil
	}
	return t.keepAhead(checkpoint{h.Size, h.Root, at})
}

// mostAhead bounds how many checkpoints that the leaves do not bear out are kept.
const mostAhead = 100_000

// keepAhead keeps a checkpoint for the lines to bear out. Another one of the same size and with
// another root is a fork.
func (t *tree) keepAhead(p checkpoint) error {
	i, found := slices.BinarySearchFunc(t.ahead, p.size, func(q checkpoint, size int64) int { return int(min(max(q.size-size, -1), 1)) })
	switch {
	case found && t.ahead[i].root == p.root:
		return nil
	case found:
		return t.fork(p, t.ahead[i].at.String())
	case len(t.ahead) >= mostAhead: // the largest one says how long the log has to be
		t.ahead = t.ahead[:mostAhead-1]
		i = min(i, mostAhead-1)
	}
	t.ahead = slices.Insert(t.ahead, i, p)
	return nil
}

func (t *tree) fork(p checkpoint, other string) error { return t.report(t.forked(p, other)) }

func (t *tree) forked(p checkpoint, other string) Finding {
	return Finding{p.at, Fork, fmt.Sprintf("the signed checkpoint of %d lines of %s excludes %s: the key was used for two logs", p.size, t.identity, other)}
}

// root is that of the first size leaves. It is false where that cannot be told, because there are
// not so many, or they are gone. Each leaf that is there is hashed: no hash over a file is believed
// in its place. It goes on from the last size that was asked for, as checkpoints come nearly in the
// order of their sizes; a smaller one is looked up among the leaves that are confirmed.
func (t *tree) root(size int64) (root tlog.Hash, ok bool, err error) {
	if t.leaves == nil {
		return root, false, nil
	}
	n, err := t.leaves.Len()
	if err != nil || n < size {
		return root, false, err
	}
	if size < t.edge.Size() {
		if size <= t.gone || size > t.confirmed {
			return root, false, nil
		}
		root, err = tlog.TreeHash(size, t.leaves)
		return root, err == nil, err
	}
	for t.edge.Size() < size {
		some, err := t.leaves.Some(t.edge.Size(), min(size-t.edge.Size(), blockSize))
		switch {
		case errors.Is(err, fs.ErrNotExist) && t.edge.Size() == t.gone:
			if t.edge, err = t.leaves.Edge(t.gone + evidence.LeavesPerFile); err != nil {
				return root, false, ignoreGone(err)
			}
			t.gone = t.edge.Size()
			continue
		case err != nil:
			return root, false, ignoreGone(err)
		}
		for _, leaf := range some {
			t.edge.Append(leaf)
		}
	}
	return t.edge.Root(), t.edge.Size() == size, nil
}

// ignoreGone: that leaves are not there is no fault of the disk.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// settle judges the checkpoints that the leaves do not bear out, once all are known: within the
// leaves that a larger one confirms they are forks, and behind them the leaves are wrong.
func (t *tree) settle() error {
	for len(t.ahead) > 0 && t.ahead[0].size <= t.confirmed {
		if err := t.fork(t.ahead[0], fmt.Sprintf("that of %d lines", t.confirmed)); err != nil {
			return err
		}
		t.ahead = t.ahead[1:]
	}
	if len(t.ahead) == 0 || t.leaves == nil {
		return nil
	}
	n, err := t.leaves.Len()
	if err != nil {
		return fmt.Errorf("reading evidence of %s: %w", t.identity, err)
	}
	if first := t.ahead[0]; n >= first.size {
		message := fmt.Sprintf("the leaves %d to %d of %s are not those of the signed checkpoint", t.confirmed, first.size-1, t.identity)
		if err := t.report(Finding{first.at, Leaves, message}); err != nil {
			return err
		}
	}
	if t.edge, err = t.leaves.Edge(t.confirmed); err != nil {
		t.broken = true // older leaves are gone: the lines cannot be added up
	}
	return nil
}
