package block

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/dustin/go-humanize"
)

// Parsed is an option with exactly one argument, which parse turns into the value.
func Parsed[T any](dst *T, parse func(string) (T, error)) Option {
	return Option{Min: 1, Max: 1, Set: func(args []string) (err error) {
		*dst, err = parse(args[0])
		return err
	}}
}

// Optional turns a parser of values into a parser for fields whose nil stands for the default, so
// that a zero value can be set.
func Optional[T any](parse func(string) (T, error)) func(string) (*T, error) {
	return func(s string) (*T, error) {
		v, err := parse(s)
		return &v, err
	}
}

// Text is an option with exactly one argument, taken as it is.
func Text[T ~string](dst *T) Option {
	return Parsed(dst, func(s string) (T, error) { return T(s), nil })
}

// Switch is an option whose one argument is the word on, or one of the words off, which mean the
// opposite.
func Switch(dst *bool, on string, off ...string) Option {
	return Parsed(dst, func(s string) (bool, error) {
		if words := append([]string{on}, off...); !slices.Contains(words, s) {
			return false, fmt.Errorf("unknown value %q: want %s", s, strings.Join(words, ", "))
		}
		return s == on, nil
	})
}

// Flag is an option without arguments.
func Flag(dst *bool) Option {
	return Option{Set: func([]string) error {
		*dst = true
		return nil
	}}
}

// Nested is an option without arguments that has a block.
func Nested(read func(r *Reader) error) Option {
	return Option{Block: func(r *Reader, _ []string) error { return read(r) }}
}

// List is an option that takes one or more arguments and may be repeated. It collects all of them.
func List(dst *[]string) Option {
	return Option{Min: 1, Max: -1, Repeat: true, Set: func(args []string) error {
		*dst = append(*dst, args...)
		return nil
	}}
}

// Count is an option whose one argument is a whole number within bounds.
func Count(dst *int, least, most int) Option { return Parsed(dst, ParseCount(least, most)) }

// ParseCount returns a parser of whole numbers within bounds.
func ParseCount(least, most int) func(string) (int, error) {
	return func(s string) (int, error) {
		v, err := strconv.Atoi(s)
		if err != nil || v < least || v > most {
			return 0, fmt.Errorf("%q is not a whole number from %d to %d", s, least, most)
		}
		return v, nil
	}
}

// Size is an option whose one argument is a number of bytes such as 256MiB.
func Size(dst *int64) Option { return Parsed(dst, ParseSize) }

// ParseSize reads a number of bytes above 0.
func ParseSize(s string) (int64, error) {
	v, err := humanize.ParseBytes(s)
	if err != nil || v == 0 || v > 1<<50 {
		return 0, fmt.Errorf("%q is not a size such as 500KiB or 256MiB", s)
	}
	return int64(v), nil
}

// Duration is an option whose one argument is a time span above 0.
func Duration(dst *caddy.Duration) Option { return Parsed(dst, ParsePositive) }

// ParsePositive reads a time span above 0, for an option for which 0 means its default.
func ParsePositive(s string) (caddy.Duration, error) {
	v, err := ParseDuration(s)
	if err == nil && v == 0 {
		err = fmt.Errorf("%q is no time at all; without the option its default holds", s)
	}
	return v, err
}

// ParseDuration reads a time span of 0 or more.
func ParseDuration(s string) (caddy.Duration, error) {
	v, err := caddy.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%q is not a duration such as 10s, 5m or 24h", s)
	}
	if v < 0 {
		return 0, fmt.Errorf("%q is negative", s)
	}
	return caddy.Duration(v), nil
}

// Durations sets two time spans. parse reads the first.
func Durations(
	parse func(string) (caddy.Duration, error), first, second *caddy.Duration,
) func(args []string) error {
	return func(args []string) (err error) {
		if *first, err = parse(args[0]); err == nil {
			*second, err = ParseDuration(args[1])
		}
		return err
	}
}
