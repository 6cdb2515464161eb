package preferences

import (
	"cmp"
	"slices"
	"strings"

	"github.com/dunglas/httpsfv"
)

// Vocabulary names the text whose labels this package reads, in the form of the log. Lines of
// another vocabulary are not reread with this one.
const Vocabulary = "aipref-08"

// draftVocab is the text itself.
const draftVocab = "draft-ietf-aipref-vocab-08"

// The purposes of the normal form. Other names are allowed too: an unknown label is its own
// purpose.
const (
	Search  = "search"
	AIInput = "ai-input"
	TrainAI = "train-ai"
	Archive = "archive"
	TDM     = "tdm"
)

// Use and License are statements that are not about a purpose: the greatest permitted use
// (Content-Signal's "use"), and the address of the terms of use (RSL 1.0).
const (
	Use     = "use"
	License = "license"
)

// vocabulary has the purposes of the normal form, in the order of a Set.
var vocabulary = []string{Search, AIInput, TrainAI, Archive, TDM, Use, License}

// The purposes of the labels in Content-Usage (draft-ietf-aipref-vocab-08 section 4) and in
// Content-Signal (draft-romm-aipref-contentsignals-00 section 4, contentsignals.org).
var (
	usageLabels  = map[string]string{"search": Search, "ai-use": AIInput, "train-ai": TrainAI}
	signalLabels = map[string]string{"search": Search, "ai-input": AIInput, "ai-train": TrainAI}
)

// Purpose returns the purpose for an operator's word: a label of Content-Usage or Content-Signal
// stands for its purpose, and every other word for itself.
func Purpose(word string) string { return cmp.Or(usageLabels[word], signalLabels[word], word) }

// maxPurpose is the length of the longest purpose.
const maxPurpose = 64

// rankOf orders purposes: the vocabulary's purposes come first.
func rankOf(purpose string) int {
	if i := slices.Index(vocabulary, purpose); i >= 0 {
		return i
	}
	return len(vocabulary)
}

// purposeOf returns the purpose of a label. A label that is the name of a purpose in the
// vocabulary, but not its label here, is unknown and must be ignored: the result is "".
func purposeOf(labels map[string]string, label string) string {
	if purpose := labels[label]; purpose != "" {
		return purpose
	}
	if rankOf(label) < len(vocabulary) || !IsPurpose(label) {
		return ""
	}
	return label
}

// IsPurpose reports whether a name can be a purpose: a key of RFC 9651 section 3.1.2, of at most 64
// bytes.
func IsPurpose(s string) bool {
	const begins = "abcdefghijklmnopqrstuvwxyz*"
	return s != "" && len(s) <= maxPurpose && strings.IndexByte(begins, s[0]) >= 0 && strings.Trim(s, begins+"0123456789_-.") == ""
}

// maxText is the longest value that is read, in bytes. Longer ones count as unreadable.
const maxText = 4096

// usage adds the statements of the lines of a Content-Usage dictionary (draft-ietf-aipref-vocab-08
// section 6.5, RFC 9651 section 4.2.2). Unreadable lines state nothing. Only the tokens y and n are
// preferences. If a key is repeated, its last value counts. Parameters are ignored.
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
		s.say(key, purposeOf(usageLabels, key), Statement{Value: tokenValue(m), From: from, Line: line})
	}
}

// tokenValue reads the tokens y and n (draft-ietf-aipref-vocab-08 section 6.2).
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

// blanks may surround the parts of a Content-Signal.
const blanks = " \t"

// signal adds the statements of a Content-Signal line or field line (contentsignals.org). It is a
// list of key=value with commas between them; keys and values are read without regard to case. Only
// yes and no are preferences. A member without = says nothing. The value of "use" is a level.
func (s *Set) signal(text string, from Source, line int) {
	if len(text) > maxText {
		s.cut = true
		return
	}
	for item := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(item, "=")
		if !ok {
			continue
		}
		key, value = strings.ToLower(strings.Trim(key, blanks)), strings.ToLower(strings.Trim(value, blanks))
		if key != Use {
			s.say(key, purposeOf(signalLabels, key), Statement{Value: signalValue(value), From: from, Line: line})
		} else if levelOf(value) >= 0 {
			s.say(key, Use, Statement{Text: value, From: from, Line: line})
		}
	}
}

func signalValue(value string) Value {
	switch value {
	case "no":
		return No
	case "yes":
		return Yes
	}
	return Unknown
}
