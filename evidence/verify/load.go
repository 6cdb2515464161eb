package verify

import (
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
	// Folders are the gateways' folders of evidence.
	Folders []string
	// Keys are verifier keys that were kept elsewhere, as the command evidence key prints them. A key
	// is valid for all generations of a log. Without any, the keys in Folders are trusted.
	Keys []string
	// Checkpoints are files of checkpoints that were kept elsewhere.
	Checkpoints []string
}

// New reads the evidence and checks the leaves against the signed checkpoints. It calls report for
// each finding, as the Checker does later.
func New(ctx context.Context, cfg Config, report func(Finding)) (*Checker, error) {
	c := &Checker{trees: make(map[string]*tree), logs: make(map[string]*logAges), series: make(map[int]*series), report: report}
	c.keys = &keyring{local: make(map[string][]byte)}
	for _, text := range cfg.Keys {
		_, key, err := parseKey(text)
		if err != nil {
			return nil, err
		}
		c.keys.given = append(c.keys.given, key)
	}
	for _, folder := range cfg.Folders {
		if err := c.folder(ctx, folder); err != nil {
			return nil, err
		}
	}
	if len(c.trees) == 0 {
		return nil, fmt.Errorf("reading evidence: %s has none, or no key with it: give one by --vkey", strings.Join(cfg.Folders, ", "))
	}
	for _, name := range cfg.Checkpoints {
		if err := c.checkpoints(ctx, name, true); err != nil {
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
func (c *Checker) folder(ctx context.Context, folder string) error {
	names, err := filepath.Glob(filepath.Join(folder, "*", "*"))
	if err != nil {
		return fmt.Errorf("reading evidence: %w", err)
	}
	slices.SortFunc(names, func(a, b string) int { return generation(a) - generation(b) })
	for _, name := range names {
		key, id, err := c.keys.ofFolder(name)
		switch {
		case generation(name) == 0 || errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return fmt.Errorf("reading evidence: %s: %w", name, err)
		case c.trees[id] != nil:
			return fmt.Errorf("reading evidence: %s: there are two folders for %s", name, id)
		}
		t := c.tree(id)
		t.tiles = evidence.Tiles(name)
		t.totals.Key, t.totals.KeyGiven = key, len(c.keys.given) > 0
		if err := c.checkpoints(ctx, filepath.Join(name, "heads"), false); err != nil {
			return err
		}
	}
	return nil
}

// generation returns the number of a generation's folder, or 0 for other folders.
func generation(name string) int {
	n, _ := strconv.Atoi(filepath.Base(name))
	return n
}

// checkpoints checks each checkpoint of a file, which is the gateway's own or was kept elsewhere.
func (c *Checker) checkpoints(ctx context.Context, name string, kept bool) error {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) && !kept {
		return nil // the gateway stopped before its first checkpoint
	} else if err != nil {
		return fmt.Errorf("reading checkpoints: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	unsigned, n := false, int64(0)
	in := io.Reader(f)
	if kept { // a single checkpoint, as the command prints it, has no end line
		in = io.MultiReader(f, strings.NewReader(evidence.CheckpointEnd))
	}
	for h, err := range evidence.ReadCheckpoints(in, c.keys) {
		n++
		at := Place{name, n}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, evidence.ErrCut) && !kept:
			return nil // a crash cut it off
		case err != nil && unsigned: // report one per file
		case err != nil:
			unsigned = true
			c.report(Finding{at, Checkpoint, err.Error()})
		default:
			if err := c.checkpoint(h, at, kept); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkpoint compares a signed checkpoint with the leaves.
func (c *Checker) checkpoint(h evidence.Checkpoint, at Place, kept bool) error {
	t := c.trees[h.LogID]
	if t == nil {
		t = c.tree(h.LogID) // its folder is gone, or not given
	}
	t.totals.Checkpoints++
	t.totals.KeptElsewhere = t.totals.KeptElsewhere || kept
	t.size = max(t.size, h.Size)
	if t.agrees.at.File != at.File {
		t.agrees = checkpoint{at: at}
	}
	p := checkpoint{h.Size, h.Root, at, t.agrees.size}
	if p.size <= t.confirmed {
		t.within(p, t.keepAhead)
		return nil
	}
	confirmed, err := t.confirm(p)
	if err != nil {
		return fmt.Errorf("reading evidence of %s: %w", h.LogID, err)
	}
	if !confirmed && p.size > t.gone { // a later checkpoint confirms the hashes of deleted leaves
		t.keepAhead(p)
	}
	return nil
}

// mostAhead bounds how many checkpoints are kept that the leaves do not confirm.
const mostAhead = 100_000

// keepAhead keeps a checkpoint that the lines must confirm. Two of the same size with different
// roots are a fork.
func (t *tree) keepAhead(p checkpoint) {
	i, found := slices.BinarySearchFunc(t.ahead, p.size, func(q checkpoint, size int64) int { return int(min(max(q.size-size, -1), 1)) })
	switch {
	case found:
		if t.ahead[i].root != p.root {
			t.report(t.forked(p, t.ahead[i].at.String()))
		}
		return
	case len(t.ahead) >= mostAhead: // the largest one says how long the log has to be
		t.ahead = t.ahead[:mostAhead-1]
		i = min(i, mostAhead-1)
	}
	t.ahead = slices.Insert(t.ahead, i, p)
}

// largestConfirmed names the largest checkpoint that the leaves confirm.
func (t *tree) largestConfirmed() string { return fmt.Sprintf("the one of %d lines", t.confirmed) }

func (t *tree) forked(p checkpoint, other string) Finding {
	from := fmt.Sprintf("they differ in a line from number %d to %d", p.agreed, p.size-1)
	return Finding{p.at, Fork, fmt.Sprintf("the signed checkpoint of %d lines of %s excludes %s: the key was used for two logs; %s", p.size, t.logID, other, from)}
}

// confirm reports whether the leaves confirm a checkpoint, the largest so far. It returns false if
// leaves are missing. It hashes each leaf on disk and trusts no hash of a higher level instead. It
// continues from the last size, because checkpoints are nearly sorted by size.
func (t *tree) confirm(p checkpoint) (bool, error) {
	if t.tiles == "" || p.size < t.edge.Size() {
		return false, nil
	}
	edge, gone := t.edge.Clone(), t.gone
	for edge.Size() < p.size {
		leaves, err := t.tiles.Hashes(0, edge.Size())
		if errors.Is(err, fs.ErrNotExist) && edge.Size() == gone {
			over, err := t.tiles.Hashes(1, gone/evidence.TileSize)
			if err != nil {
				return false, ignoreGone(err)
			}
			edge.Skip(over[0])
			gone = edge.Size()
			continue
		}
		if err != nil {
			return false, ignoreGone(err)
		}
		for _, leaf := range leaves[:min(int64(len(leaves)), p.size-edge.Size())] {
			edge.Append(leaf)
		}
	}
	t.edge, t.gone = edge, gone
	if edge.Size() > p.size || edge.Root() != p.root {
		return false, nil
	}
	t.confirmed, t.root, t.proven = p.size, p.root, edge.Clone()
	return true, nil
}

// within compares a checkpoint with the hashes of a larger, confirmed one. It calls excluded if
// they contradict it.
func (t *tree) within(p checkpoint, excluded func(checkpoint)) {
	if p.size <= t.gone {
		return
	}
	root, err := tlog.TreeHash(p.size, tlog.TileHashReader(tlog.Tree{N: t.confirmed, Hash: t.root}, t.tiles))
	switch {
	case err != nil && ignoreGone(err) == nil:
	case err != nil:
		t.reportOnce(Finding{p.at, Leaves, fmt.Sprintf("the hashes over the leaves of %s contradict the signed checkpoint of %d lines", t.logID, t.confirmed)})
	case root != p.root:
		excluded(p)
	default:
		t.agrees.size = p.size
	}
}

// ignoreGone ignores errors about missing leaves, which are not faults of the disk.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.ErrUnexpectedEOF) {
		return nil
	}
	return err
}

// settle judges the checkpoints that the leaves do not confirm, once all are known. Up to the size
// of a confirmed checkpoint they are forks; beyond it, the leaves are wrong.
func (t *tree) settle() error {
	for len(t.ahead) > 0 && t.ahead[0].size <= t.confirmed {
		t.report(t.forked(t.ahead[0], t.largestConfirmed()))
		t.ahead = t.ahead[1:]
	}
	if len(t.ahead) == 0 || t.tiles == "" {
		return nil
	}
	t.edge = t.proven
	first := t.ahead[0]
	if _, err := t.tiles.Hashes(0, first.size-1); err != nil {
		return ignoreGone(err)
	}
	message := fmt.Sprintf("the leaves %d to %d of %s contradict the signed checkpoint", t.confirmed, first.size-1, t.logID)
	t.report(Finding{first.at, Leaves, message})
	return nil
}
