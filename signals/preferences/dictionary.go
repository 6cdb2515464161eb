package preferences

import (
	"slices"
	"strings"

	"github.com/dunglas/httpsfv"

	"github.com/crawlgate/crawlgate/signals/directives"
)

// MaxDictionary is the length of the longest crawler's field, in bytes.
const MaxDictionary = 1024

// Dictionary writes the value of the crawler's field, a dictionary of RFC 9651: the deciding
// statement of each purpose with a preference, then the directives, with hyphens in their names,
// then licences, as an inner list, and the labels outside all vocabularies. A member that would
// make it longer than 1 KiB is left out, and cut is true.
func Dictionary(s Set, said []directives.Directive) (field string, cut bool) {
	text, keys := make([]byte, 0, 256), make([]string, 0, 16)
	add := func(key string, member []byte) {
		if slices.Contains(keys, key) {
			return // a label is spelled as a directive is
		}
		if len(text)+len(", ")+len(member) > MaxDictionary {
			cut = true
			return
		}
		keys = append(keys, key)
		if len(text) > 0 {
			text = append(text, ", "...)
		}
		text = append(text, member...)
	}
	decided := s.Decided()
	var buffer [128]byte
	for len(decided) > 0 && rankOf(decided[0].Purpose) < rankOf(License) {
		add(decided[0].Purpose, decided[0].append(buffer[:0]))
		decided = decided[1:]
	}
	for _, d := range said {
		add(memberOf(d))
	}
	var licences []byte
	for len(decided) > 0 && decided[0].Purpose == License {
		licences = decided[0].appendItem(append(licences, ' '))
		decided = decided[1:]
	}
	if len(licences) > 0 {
		add(License, []byte(License+"=("+string(licences[1:])+")"))
	}
	for i := range decided {
		add(decided[i].Purpose, decided[i].append(buffer[:0]))
	}
	return string(text), cut
}

// memberOf writes a directive as a member, and returns its key. Most directives have no more than
// the key.
func memberOf(d directives.Directive) (key string, member []byte) {
	key = strings.ReplaceAll(d.Name, "_", "-")
	if d.Value == nil {
		return key, []byte(key)
	}
	if word, ok := d.Value.(string); ok {
		d.Value = httpsfv.Token(word)
	}
	text, _ := httpsfv.Marshal(httpsfv.NewItem(d.Value)) // of a small number, a date or a word
	return key, []byte(key + "=" + text)
}
