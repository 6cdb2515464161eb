package preferences

import (
	"slices"
	"strings"
)

// blanks are what may stand around the parts of a Content-Signal.
const blanks = " \t"

// signal adds what a Content-Signal line or field line says (contentsignals.org). It is a list of
// key=value with commas between them; keys and values are read without regard to case. Only yes and
// no are preferences. What has no = says nothing. The value of "use" is a level.
func (s *Set) signal(text string, from Source, line int) {
	if len(text) > maxText {
		return
	}
	raw := cut(text, maxRaw)
	for item := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(item, "=")
		if !ok {
			continue
		}
		key, value = strings.ToLower(strings.Trim(key, blanks)), strings.ToLower(strings.Trim(value, blanks))
		if key == useKey {
			if i := slices.Index(levels[1:], value); i >= 0 {
				s.use = s.use.stricter(Use{Level: Level(i + 1), From: from, Line: line})
			}
			continue
		}
		if purpose := ofSignal(key); purpose != "" {
			s.statements = append(s.statements, Statement{
				Purpose: purpose, Value: signalValue(value), From: from, Line: line, Raw: raw,
			})
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
