package block

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// Grammar lists the options that a block may have, by name.
type Grammar map[string]Option

// Option is one line of a block, together with the block that it may open.
type Option struct {
	// Min and Max bound the number of arguments. A Max below 0 means any number.
	Min, Max int
	// Repeat means that the option may appear more than once.
	Repeat bool
	// Set receives the arguments of an option without a block.
	Set func(args []string) error
	// Block receives the arguments of an option with a block, and reads the block by a [Grammar],
	// whose error it returns unchanged. Exactly one of Set and Block is not nil.
	Block func(r *Reader, args []string) error
}

// Reader reads the lines of the segment of a directive or a global option.
type Reader struct {
	*caddyfile.Dispenser
	lines, limit int             // read so far, and how many to read at most
	last         caddyfile.Token // from the last line that was read
}

// errLimit ends the reading of a segment that is only read in part.
var errLimit = errors.New("enough lines have been read")

// Read consumes the block that opens on the current line, if any. Errors call the block what.
func (g Grammar) Read(r *Reader, what string) error {
	seen := make(map[string]bool, len(g))
	for nesting := r.Nesting(); r.NextBlock(nesting); {
		if r.lines == r.limit {
			return errLimit
		}
		r.lines++
		name := r.Val()
		opt, ok := g[name]
		if !ok {
			return r.WrapErr(fmt.Errorf("unknown option %q in %s: want one of %s",
				name, what, strings.Join(slices.Sorted(maps.Keys(g)), ", ")))
		}
		if seen[name] && !opt.Repeat {
			return r.WrapErr(fmt.Errorf("option %q of %s is given twice", name, what))
		}
		seen[name] = true
		args := r.RemainingArgs()
		r.last = r.Token()
		if err := opt.checkArgs(args); err != nil {
			return r.WrapErr(fmt.Errorf("option %q of %s %w", name, what, err))
		}
		if opt.Block != nil {
			if err := opt.Block(r, args); err != nil {
				return err
			}
			continue
		}
		if err := opt.Set(args); err != nil {
			return r.WrapErr(fmt.Errorf("option %q of %s: %w", name, what, err))
		}
		if r.NextBlock(r.Nesting()) {
			return r.WrapErr(fmt.Errorf("option %q of %s takes no block", name, what))
		}
	}
	return nil
}

func (o Option) checkArgs(args []string) error {
	switch n := len(args); {
	case o.Max == 0 && n > 0:
		return fmt.Errorf("takes no argument, found %d", n)
	case o.Min == 1 && o.Max == 1 && n > 1:
		return fmt.Errorf("takes 1 argument, found %d; quote a text with spaces", n)
	case o.Min == o.Max && n != o.Min:
		return fmt.Errorf("takes %s, found %d", arguments(o.Min), n)
	case n < o.Min:
		return fmt.Errorf("takes at least %s, found %d", arguments(o.Min), n)
	case o.Max >= 0 && n > o.Max:
		return fmt.Errorf("takes at most %s, found %d", arguments(o.Max), n)
	case n > 1 && slices.ContainsFunc(args[:n-1], func(arg string) bool { return strings.HasSuffix(arg, ",") }):
		return errors.New("has a comma between arguments: want a space alone")
	case slices.Contains(args, ""): // of a variable that is not set; as a value it would mean the default
		return errors.New("has an empty argument: give a value, or leave the option out")
	}
	return nil
}

func arguments(n int) string {
	if n == 1 {
		return "1 argument"
	}
	return strconv.Itoa(n) + " arguments"
}

// Segment reads and compiles the segment of a directive or an option. read sets dst from the lines,
// one at a time. compile finds faults that several lines cause together. Segment reports such a
// fault for the line that completes it. To find that line, it reads beginnings of the segment
// again, into values that fresh makes.
func Segment[T, C any](
	d *caddyfile.Dispenser, dst T, fresh func() T, read func(T, *Reader) error, compile func(T) (C, error),
) error {
	tokens := d.NextSegment()
	whole := newReader(tokens, math.MaxInt)
	if err := read(dst, whole); err != nil {
		return err
	}
	_, fault := compile(dst)
	if fault == nil {
		return nil
	}
	// A beginning that is too short for the fault has no fault, or another one.
	first := sort.Search(whole.lines, func(n int) bool {
		part := fresh()
		err := read(part, newReader(tokens, n))
		if err == nil || errors.Is(err, errLimit) {
			_, err = compile(part)
		}
		return err != nil && err.Error() == fault.Error()
	})
	until := newReader(tokens, first)
	_ = read(fresh(), until) // to learn its last line
	at := newReader([]caddyfile.Token{until.last}, 0)
	return at.WrapErr(fmt.Errorf("%s: %w", tokens[0].Text, fault))
}

func newReader(tokens []caddyfile.Token, limit int) *Reader {
	d := caddyfile.NewDispenser(tokens)
	d.Next()
	return &Reader{Dispenser: d, limit: limit, last: tokens[0]}
}
