package preferences

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dunglas/httpsfv"

	"github.com/crawlgate/crawlgate/robotstxt"
)

// maxWarnings bounds the warnings about one file.
const maxWarnings = 1000

// Lint reports the faults in the values of the Content-Usage, Content-Signal and License lines of a
// robots.txt, in the order of the lines: at most 1,000 warnings. [robotstxt.Lint] reports the
// others.
func Lint(data []byte) []robotstxt.Warning {
	if robotstxt.IsUTF16(data) {
		return nil // nothing in it is read
	}
	var l linter
	for _, p := range robotstxt.Parse(data).Preferences() {
		if len(l.warnings) >= maxWarnings {
			break
		}
		l.line = p.Line
		switch p.Kind {
		case robotstxt.ContentUsage:
			l.usage(p)
		case robotstxt.ContentSignal:
			l.signal(p)
		case robotstxt.License:
			if !isAbsolute(p.Value) {
				l.warn("bad-license", "%q is not an absolute URL", cut(p.Value, 80))
			}
		}
	}
	return l.warnings[:min(len(l.warnings), maxWarnings)]
}

type linter struct {
	line     int
	warnings []robotstxt.Warning
}

func (l *linter) warn(code, format string, args ...any) {
	l.warnings = append(l.warnings, robotstxt.Warning{Line: l.line, Code: code, Message: fmt.Sprintf(format, args...)})
}

func (l *linter) usage(p robotstxt.Preference) {
	if p.Loose {
		l.warn("preference-outside-group", "there is no user-agent line before this Content-Usage line: it applies to no crawler")
	}
	if !l.readable(p) {
		return
	}
	d, err := httpsfv.UnmarshalDictionary([]string{p.Value})
	if err != nil {
		l.noDictionary(p, err)
		return
	}
	l.repeated(p.Value, d.Names())
	for _, key := range d.Names() {
		m, _ := d.Get(key)
		if tokenValue(m) == Unknown {
			l.badUsage(key, m)
		}
		if hint := usageHints[key]; hint != "" {
			l.warn("preference-label", "Content-Usage has no %s: %s", key, hint)
		} else if purposeOf(usageLabels, key) == key && rankOf(key) == len(vocabulary) {
			l.warn("preference-label", "%s has no label %q: it is kept as a purpose of that name", draftVocab, cut(key, maxPurpose))
		}
	}
}

// cut returns at most the first most bytes of a text.
func cut(s string, most int) string { return s[:min(len(s), most)] }

// readable reports whether a line has a value that is not too long.
func (l *linter) readable(p robotstxt.Preference) bool {
	switch {
	case p.Value == "":
		l.warn("preference-empty", "the line says nothing")
		return false
	case len(p.Value) > maxText:
		l.warn("preference-too-long", "the value has %d bytes, more than %d: it is not read", len(p.Value), maxText)
		return false
	}
	return true
}

// usageHints and signalHints are the labels of the other key.
var (
	usageHints = map[string]string{
		"ai-train": "its label is train-ai", "ai-input": "its label is ai-use", Use: "only Content-Signal has it",
	}
	signalHints = map[string]string{"train-ai": "its label is ai-train", "ai-use": "its label is ai-input"}
)

// noDictionary says why a Content-Usage value cannot be read.
func (l *linter) noDictionary(p robotstxt.Preference, err error) {
	lower := strings.ToLower(p.Value)
	_, lowerErr := httpsfv.UnmarshalDictionary([]string{lower})
	word, _, _ := strings.Cut(p.Value, " ")
	switch {
	case p.Path == "" && strings.ContainsAny(word, "/*$") && !strings.Contains(word, "="):
		l.warn("preference-path", "%q is not a path, because it does not begin with a slash: the line is ignored", cut(word, 80))
	case lower != p.Value && lowerErr == nil:
		l.warn("preference-upper-case", "keys must be in lower case (%s section 6.5): the line is ignored", draftVocab)
	default:
		l.warn("preference-syntax", "%q is not a dictionary of RFC 9651 (%s): the line is ignored", cut(p.Value, 80), reason(err))
	}
}

// reason returns what a parser says, without its own prefix.
func reason(err error) string {
	if inner := errors.Unwrap(err); inner != nil {
		err = inner
	}
	return err.Error()
}

// badUsage warns of a value that is neither of the tokens y and n.
func (l *linter) badUsage(key string, m httpsfv.Member) {
	item, _ := m.(httpsfv.Item)
	switch v := item.Value.(type) {
	case string:
		l.warn("preference-value", "%s=%q is a string: only the words y and n, without quotes, are preferences", key, cut(v, 80))
	case httpsfv.Token:
		hint := ""
		if word := meant[strings.ToLower(string(v))]; word != "" {
			hint = fmt.Sprintf(": write %s=%s", key, word[:1])
		}
		l.warn("preference-value", "%s=%s is neither y nor n, so the preference is unknown%s", key, cut(string(v), 80), hint)
	default: // a list, or an item of another type
		l.warn("preference-value", "the value of %s is neither y nor n, so the preference is unknown", key)
	}
}

// meant are words that authors use in place of yes and no.
var meant = map[string]string{
	"disallow": "no", "disallowed": "no", "deny": "no", "false": "no", "none": "no", "off": "no", "no": "no", "n": "no", "0": "no",
	"allow": "yes", "allowed": "yes", "true": "yes", "all": "yes", "on": "yes", "yes": "yes", "y": "yes", "1": "yes",
}

func (l *linter) signal(p robotstxt.Preference) {
	if p.Path != "" {
		l.warn("preference-path", "contentsignals.org has no paths: here the line is read as one for %q", cut(p.Path, 80))
	}
	if !l.readable(p) {
		return
	}
	var keys []string
	for item := range strings.SplitSeq(p.Value, ",") {
		item = strings.Trim(item, blanks)
		key, value, ok := strings.Cut(item, "=")
		if !ok {
			l.warn("preference-syntax", "%q has no =: it has no effect", cut(item, 80))
			continue
		}
		key, value = strings.ToLower(strings.Trim(key, blanks)), strings.Trim(value, blanks)
		keys = append(keys, key)
		l.signalItem(key, value)
	}
	slices.Sort(keys)
	l.repeated(p.Value, slices.Compact(keys))
}

func (l *linter) signalItem(key, value string) {
	lower := strings.ToLower(value)
	if key == Use {
		if !slices.Contains(levels, lower) {
			l.warn("preference-value", "use=%s is not immediate, reference or full", cut(value, 80))
		}
		return
	}
	if signalValue(lower) == Unknown {
		hint := ""
		if word := meant[lower]; word != "" {
			hint = fmt.Sprintf(": write %s=%s", cut(key, maxPurpose), word)
		}
		l.warn("preference-value", "%s=%s is neither yes nor no, so the preference is unknown%s", cut(key, maxPurpose), cut(value, 80), hint)
	}
	switch purpose := purposeOf(signalLabels, key); {
	case signalHints[key] != "":
		l.warn("preference-label", "Content-Signal has no %s: %s", key, signalHints[key])
	case purpose == "":
		l.warn("preference-label", "%q is not a label of Content-Signal", cut(key, maxPurpose))
	case rankOf(purpose) == len(vocabulary):
		l.warn("preference-label", "Content-Signal has no label %q: it is kept as a purpose of that name", key)
	}
}

// repeated warns about keys that a value has more than once. keys has each key once.
func (l *linter) repeated(value string, keys []string) {
	count := make(map[string]int, len(keys))
	for item := range strings.SplitSeq(value, ",") {
		word, _, _ := strings.Cut(strings.Trim(item, blanks), "=")
		word, _, _ = strings.Cut(word, ";")
		count[strings.ToLower(strings.Trim(word, blanks))]++
	}
	for _, key := range keys {
		if count[key] > 1 {
			l.warn("preference-repeated", "%s appears %d times", cut(key, maxPurpose), count[key])
		}
	}
}
