package preferences

import "github.com/dunglas/httpsfv"

// maxText is the longest value that is read, in bytes. Longer ones count as unreadable.
const maxText = 4096

// usage adds the statements of the lines of a Content-Usage dictionary (draft-ietf-aipref-vocab-07
// section 6.5, RFC 9651 section 4.2.2). Lines that cannot be read state nothing. Only the tokens y
// and n are preferences; of a repeated key the last value counts; parameters mean nothing.
func (s *Set) usage(lines []string, from Source, line int) {
	size := 0
	for _, l := range lines {
		size += len(l)
	}
	if size > maxText {
		s.cut = true
		return
	}
	d, err := httpsfv.UnmarshalDictionary(lines)
	if err != nil {
		return
	}
	for _, key := range d.Names() {
		m, _ := d.Get(key)
		s.say(key, ofUsage(key), Statement{Value: tokenValue(m), From: from, Line: line})
	}
}

// tokenValue reads the tokens y and n (draft-ietf-aipref-vocab-07 section 6.2).
func tokenValue(m httpsfv.Member) Value {
	item, ok := m.(httpsfv.Item)
	if !ok {
		return Unknown
	}
	switch item.Value {
	case httpsfv.Token("n"):
		return No
	case httpsfv.Token("y"):
		return Yes
	}
	return Unknown
}
