package block

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/dustin/go-humanize"
)

// Fields returns the special options, and one for each field of the struct *dst of a type that has
// an obvious form: a text, texts, a number of bytes as an int64, a number from 1 to [MaxCount] as
// an int, a duration, a bool (on or off), and a block for a pointer to such a struct. The option
// has the name that the field has in JSON, or its name in names. An empty one leaves the field out.
func Fields(dst any, names map[string]string, special Grammar) Grammar {
	g := make(Grammar)
	for field, value := range reflect.ValueOf(dst).Elem().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if other, ok := names[name]; ok {
			name = other
		}
		if field.Anonymous {
			maps.Copy(g, Fields(value.Addr().Interface(), names, nil))
		} else if field.IsExported() && name != "" && name != "-" {
			if opt, ok := optionOf(value, name, names); ok {
				g[name] = opt
			}
		}
	}
	maps.Copy(g, special)
	return g
}

var placeholder = regexp.MustCompile(`\{(env|file|system|http|vars)\.`)

// optionOf returns the option for a field, unless it needs a special one.
func optionOf(value reflect.Value, name string, names map[string]string) (opt Option, ok bool) {
	switch p := value.Addr().Interface().(type) {
	case *[]string:
		return List(p), true
	case *bool:
		return Switch(p, "on", "off"), true
	case *int64:
		return Parsed(p, ParseSize), true
	case *int:
		return Count(p, 1, MaxCount), true
	case *caddy.Duration:
		return Parsed(p, ParsePositive), true
	case **caddy.Duration: // nil stands for the default, so that 0 can be set
		return Parsed(p, func(s string) (*caddy.Duration, error) {
			d, err := ParseDuration(s)
			return &d, err
		}), true
	}
	switch t := value.Type(); {
	case t.Kind() == reflect.String:
		return Option{Min: 1, Max: 1, Set: func(args []string) error {
			if placeholder.MatchString(args[0]) {
				return fmt.Errorf("%q: placeholders are not replaced here: want {$NAME}, which is replaced as the file is read", args[0])
			}
			value.SetString(args[0])
			return nil
		}}, true
	case t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct:
		return Option{Block: func(r *Reader, _ []string) error {
			value.Set(reflect.New(t.Elem()))
			return Fields(value.Interface(), names, nil).Read(r, name)
		}}, true
	}
	return opt, false
}

// Negative returns the name, in JSON, of a number or a time span below 0 in a struct, or "". A
// Caddyfile cannot have one.
func Negative(v reflect.Value) string {
	for field, value := range v.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch value = reflect.Indirect(value); {
		case !field.IsExported():
		case value.CanInt() && value.Int() < 0:
			return name
		case value.Kind() == reflect.Struct:
			if inner := Negative(value); inner != "" {
				return name + ": " + inner
			}
		}
	}
	return ""
}

// Parsed is an option with exactly one argument, which parse turns into the value.
func Parsed[T any](dst *T, parse func(string) (T, error)) Option {
	return Option{Min: 1, Max: 1, Set: func(args []string) (err error) {
		*dst, err = parse(args[0])
		return err
	}}
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

// Replaced is a text in which the module replaces placeholders.
func Replaced(dst *string) Option {
	return Parsed(dst, func(s string) (string, error) { return s, nil })
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

// MaxCount is the largest number of an option without a bound of its own.
const MaxCount = 1_000_000

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

// ParseSize reads a number of bytes above 0.
func ParseSize(s string) (int64, error) {
	v, err := humanize.ParseBytes(s)
	if err != nil || v == 0 || v > 1<<50 {
		return 0, fmt.Errorf("%q is not a size such as 500KiB or 256MiB", s)
	}
	return int64(v), nil
}

// ParsePositive reads a time span above 0, for an option for which 0 means its default.
func ParsePositive(s string) (caddy.Duration, error) {
	v, err := ParseDuration(s)
	if err == nil && v == 0 {
		err = fmt.Errorf("%q is zero; leave the option out to get its default", s)
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

// Durations sets two time spans, which parse reads.
func Durations(
	parse func(string) (caddy.Duration, error), first, second *caddy.Duration,
) func(args []string) error {
	return func(args []string) (err error) {
		if *first, err = parse(args[0]); err == nil {
			*second, err = parse(args[1])
		}
		return err
	}
}
