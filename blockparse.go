package crawlgate

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/dustin/go-humanize"
)

// block is the grammar of one { } block of our Caddyfile: what may stand in it. Reading all blocks through one
// loop makes unknown, repeated, missing and extra words fail in the same way everywhere, with file and line.
type block map[string]option

// option is one line of a block.
type option struct {
	min, max int  // how many arguments; max < 0 means any number
	repeat   bool // may stand more than once
	nested   bool // set reads a block of its own
	set      func(d *caddyfile.Dispenser, args []string) error
}

// read consumes the block that opens on the current line, if any. what names it in errors.
func (b block) read(d *caddyfile.Dispenser, what string) error {
	seen := make(map[string]bool, len(b))
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		name := d.Val()
		opt, ok := b[name]
		if !ok {
			return positioned(d, fmt.Errorf("unknown option %q in %s: want one of %s", name, what, b.names()))
		}
		if seen[name] && !opt.repeat {
			return positioned(d, fmt.Errorf("option %q of %s is given twice", name, what))
		}
		seen[name] = true
		args := d.RemainingArgs()
		if err := opt.count(len(args)); err != nil {
			return positioned(d, fmt.Errorf("option %q of %s %w", name, what, err))
		}
		if err := opt.set(d, args); err != nil {
			return positioned(d, fmt.Errorf("option %q of %s: %w", name, what, err))
		}
		if !opt.nested && d.NextBlock(d.Nesting()) {
			return positioned(d, fmt.Errorf("option %q of %s takes no block", name, what))
		}
	}
	return nil
}

// positionedError is an error that already says where it was found.
type positionedError struct{ error }

func (e positionedError) Unwrap() error { return e.error }

// positioned adds file and line, once: the innermost line is the one to mend.
func positioned(d *caddyfile.Dispenser, err error) error {
	if at, ok := errors.AsType[positionedError](err); ok {
		return at
	}
	return positionedError{d.WrapErr(err)}
}

// whole is what a directive or an option makes of its block.
type whole interface {
	// read takes the lines, each by itself.
	read(d *caddyfile.Dispenser) error
	// check reports a fault in which several lines may have a part.
	check() error
}

// readWhole reads and checks a whole. A fault that check finds is reported for the line that brings it in, for which the
// beginnings of the block are read into fresh values.
func readWhole(d *caddyfile.Dispenser, w whole, fresh func() whole) error {
	lines := d.NextSegment()
	if err := w.read(dispense(lines)); err != nil {
		return err
	}
	fault := w.check()
	if fault == nil {
		return nil
	}
	var ends []int // of lines
	for n := 1; n < len(lines); n++ {
		if isNextLine(lines[n-1], lines[n]) {
			ends = append(ends, n)
		}
	}
	// The first line with which the fault is there: before it there is none, or another one.
	n := sort.Search(len(ends), func(i int) bool {
		part := fresh()
		err := part.read(dispense(closed(lines[:ends[i]])))
		if err == nil {
			err = part.check()
		}
		return err != nil && err.Error() == fault.Error()
	})
	last := len(lines) - 1
	if n < len(ends) {
		last = ends[n] - 1
	}
	return positioned(dispense(lines[last:]), fault)
}

func dispense(tokens []caddyfile.Token) *caddyfile.Dispenser {
	d := caddyfile.NewDispenser(tokens)
	d.Next()
	return d
}

// isNextLine reports whether a token is not on the line of the one before it.
func isNextLine(before, token caddyfile.Token) bool {
	return token.File != before.File || token.Line != before.Line+before.NumLineBreaks()
}

// closed is the beginning of a segment, with the braces that close what is open there.
func closed(lines []caddyfile.Token) []caddyfile.Token {
	part := slices.Clone(lines)
	open := 0
	for i, t := range lines {
		switch {
		case i+1 < len(lines) && !isNextLine(t, lines[i+1]):
		case t.Text == "{":
			open++
		case t.Text == "}":
			open--
		}
	}
	last := lines[len(lines)-1]
	for i := range open {
		part = append(part, caddyfile.Token{File: last.File, Line: last.Line + last.NumLineBreaks() + 1 + i, Text: "}"})
	}
	return part
}

// count checks the number of arguments of a line.
func (o option) count(n int) error {
	switch {
	case o.max == 0 && n > 0:
		return fmt.Errorf("takes no argument, found %d", n)
	case o.min == o.max && n != o.min:
		return fmt.Errorf("takes %s, found %d", arguments(o.min), n)
	case n < o.min:
		return fmt.Errorf("takes at least %s, found %d", arguments(o.min), n)
	case o.max >= 0 && n > o.max:
		return fmt.Errorf("takes at most %s, found %d", arguments(o.max), n)
	}
	return nil
}

func arguments(n int) string {
	if n == 1 {
		return "1 argument"
	}
	return strconv.Itoa(n) + " arguments"
}

func (b block) names() string {
	names := make([]string, 0, len(b))
	for n := range b {
		names = append(names, n)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// text is an option with exactly one argument, taken as it is.
func text(dst *string) option {
	return option{min: 1, max: 1, set: func(_ *caddyfile.Dispenser, args []string) error {
		*dst = args[0]
		return nil
	}}
}

// choice is an option whose one argument is one of a few words.
func choice(dst *string, words ...string) option {
	return option{min: 1, max: 1, set: func(_ *caddyfile.Dispenser, args []string) error {
		*dst = args[0]
		if !slices.Contains(words, args[0]) {
			return fmt.Errorf("unknown value %q: want %s", args[0], strings.Join(words, ", "))
		}
		return nil
	}}
}

// duration is an option whose one argument is a time span above 0.
func duration(dst *caddy.Duration) option {
	return option{min: 1, max: 1, set: func(_ *caddyfile.Dispenser, args []string) (err error) {
		*dst, err = parsePositive(args[0])
		return err
	}}
}

// parsePositive reads a time span above 0, for an option of which 0 would be taken for its default.
func parsePositive(s string) (caddy.Duration, error) {
	v, err := parseDuration(s)
	if err == nil && v == 0 {
		err = fmt.Errorf("%q is no time at all; without the option its default holds", s)
	}
	return v, err
}

func parseDuration(s string) (caddy.Duration, error) {
	v, err := caddy.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration such as 10s, 5m or 24h", s)
	}
	if v < 0 {
		return 0, fmt.Errorf("%q is negative", s)
	}
	return caddy.Duration(v), nil
}

// size is an option whose one argument is a number of bytes such as 256MiB.
func size(dst *int64) option {
	return option{min: 1, max: 1, set: func(_ *caddyfile.Dispenser, args []string) error {
		v, err := humanize.ParseBytes(args[0])
		if err != nil || v == 0 || v > 1<<50 {
			return fmt.Errorf("%q is not a size such as 500KiB or 256MiB", args[0])
		}
		*dst = int64(v)
		return nil
	}}
}

// count is an option whose one argument is a whole number within bounds.
func count(dst *int, least, most int) option {
	return option{min: 1, max: 1, set: func(_ *caddyfile.Dispenser, args []string) error {
		v, err := parseCount(args[0], least, most)
		*dst = v
		return err
	}}
}

func parseCount(s string, least, most int) (int, error) {
	v, err := strconv.Atoi(s)
	if err != nil || v < least || v > most {
		return 0, fmt.Errorf("%q is not a whole number from %d to %d", s, least, most)
	}
	return v, nil
}

// list is an option that takes one or more arguments and may be repeated; all are collected.
func list(dst *[]string) option {
	return option{min: 1, max: -1, repeat: true, set: func(_ *caddyfile.Dispenser, args []string) error {
		*dst = append(*dst, args...)
		return nil
	}}
}

// flag is an option without arguments.
func flag(dst *bool) option {
	return option{set: func(*caddyfile.Dispenser, []string) error {
		*dst = true
		return nil
	}}
}

// onOff is an option whose one argument is on or off.
func onOff(dst *bool) option {
	var word string
	o := choice(&word, "on", "off")
	set := o.set
	o.set = func(d *caddyfile.Dispenser, args []string) error {
		err := set(d, args)
		*dst = word == "on"
		return err
	}
	return o
}

// nested is an option without arguments that opens a block of its own.
func nested(read func(d *caddyfile.Dispenser) error) option {
	return option{nested: true, set: func(d *caddyfile.Dispenser, _ []string) error { return read(d) }}
}

// seconds prints a duration for an error message in the form an operator would write it.
func seconds(d caddy.Duration) string { return time.Duration(d).String() }
