package preferences

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/dunglas/httpsfv"
)

// Directive is a robots directive for the crawler's field.
type Directive struct {
	Name string // such as "noindex" or "unavailable-after"
	// Value is nil for a directive without one, or a bool, int, int64, string or time.Time. Others are
	// left out.
	Value any
}

// MaxDictionary is the length of the longest crawler's field, in bytes.
const MaxDictionary = 1024

// Dictionary writes the value of the crawler's field, a dictionary of RFC 9651: the deciding
// statement of each purpose of which something is known, in the order of [Set.Statements], then the
// directives in their own, with hyphens in their names. A member that would make it longer than 1
// KiB, that cannot be written, or whose key was there is left out.
func Dictionary(s Set, directives []Directive) string {
	text, keys := make([]byte, 0, 256), make([]string, 0, 16)
	add := func(key string, member []byte) {
		if slices.Contains(keys, key) || len(text)+len(", ")+len(member) > MaxDictionary {
			return
		}
		keys = append(keys, key)
		if len(text) > 0 {
			text = append(text, ", "...)
		}
		text = append(text, member...)
	}
	var buffer [128]byte
	for _, d := range s.Decided() {
		add(d.Purpose, d.append(buffer[:0]))
	}
	for _, d := range directives {
		key := strings.ReplaceAll(strings.ToLower(d.Name), "_", "-")
		if member, ok := memberOf(key, d.Value); ok {
			add(key, []byte(member))
		}
	}
	return string(text)
}

// memberOf writes a directive as a member. Most have no value, and are their name.
func memberOf(key string, value any) (string, bool) {
	if !IsPurpose(key) {
		return "", false
	}
	item := bareItem(value)
	switch item {
	case nil:
		return "", false
	case true:
		return key, true
	}
	text, err := httpsfv.Marshal(httpsfv.NewItem(item))
	return key + "=" + text, err == nil
}

// bareItem returns a directive's value as RFC 9651 section 3.3 has it, nil where it has none for
// its type. A word becomes a token.
func bareItem(v any) any {
	switch v := v.(type) {
	case nil:
		return true
	case bool, int, int64, time.Time:
		return v
	case string:
		if _, err := httpsfv.Marshal(httpsfv.NewItem(httpsfv.Token(v))); err == nil {
			return httpsfv.Token(v)
		}
		if _, err := httpsfv.Marshal(httpsfv.NewItem(v)); err == nil {
			return v
		}
		if utf8.ValidString(v) {
			return httpsfv.DisplayString(v)
		}
	}
	return nil
}
