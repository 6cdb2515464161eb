package preferences

import "strings"

// blanks are what may stand around the parts of a Content-Signal.
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
			s.say(key, ofSignal(key), Statement{Value: signalValue(value), From: from, Line: line})
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
