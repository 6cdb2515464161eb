package enforce

import "strings"

// Form is the form of a refusal's body. The zero value is FormText.
type Form uint8

const (
	// FormText is text/plain, whose first line stands by itself.
	FormText Form = iota
	// FormJSON is application/problem+json (RFC 9457).
	FormJSON
	// FormHTML is text/html, for browsers.
	FormHTML
)

// String returns "text", "json" or "html".
func (f Form) String() string {
	switch f {
	case FormJSON:
		return "json"
	case FormHTML:
		return "html"
	default:
		return "text"
	}
}

// ContentType returns the media type of the form.
func (f Form) ContentType() string {
	switch f {
	case FormJSON:
		return "application/problem+json"
	case FormHTML:
		return "text/html; charset=utf-8"
	default:
		return "text/plain; charset=utf-8"
	}
}

// Negotiate chooses the form of a refusal by the value of an Accept field (RFC 9110 section
// 12.5.1), several fields joined by commas.
//
// It is the form of the media range with the greatest weight, of equal ones the first. JSON
// and HTML have to be asked for by name: a range such as */* gives text. So does whatever
// cannot be read, and whoever wants none of the three: a refusal is not withheld for its form.
func Negotiate(accept string) Form {
	best, form := 0, FormText
	for rest, more := accept, accept != ""; more; {
		var mediaRange string
		mediaRange, rest, more = cutUnquoted(rest, ',')
		if f, weight, ok := readRange(mediaRange); ok && weight > best {
			best, form = weight, f
		}
	}
	return form
}

// readRange reads a media range with its weight in thousandths, and reports whether it is
// one of ours.
func readRange(s string) (f Form, weight int, ok bool) {
	mediaType, params, more := cutUnquoted(s, ';')
	if f, ok = formOf(trim(mediaType)); !ok {
		return FormText, 0, false
	}
	weight = 1000
	for more {
		var param string
		param, params, more = cutUnquoted(params, ';')
		name, value, _ := strings.Cut(trim(param), "=")
		if strings.EqualFold(trim(name), "q") {
			if weight, ok = readWeight(trim(value)); !ok {
				return FormText, 0, false
			}
		}
	}
	return f, weight, true
}

func formOf(mediaType string) (Form, bool) {
	main, sub, ok := strings.Cut(mediaType, "/")
	switch {
	case !ok:
		return FormText, false
	case strings.EqualFold(main, "application"):
		isJSON := strings.EqualFold(sub, "json") || strings.EqualFold(sub, "problem+json")
		isHTML := strings.EqualFold(sub, "xhtml+xml")
		switch {
		case isJSON:
			return FormJSON, true
		case isHTML:
			return FormHTML, true
		}
		return FormText, false
	case strings.EqualFold(main, "text"):
		if strings.EqualFold(sub, "html") {
			return FormHTML, true
		}
		return FormText, strings.EqualFold(sub, "plain") || sub == "*"
	default:
		return FormText, mediaType == "*/*"
	}
}

// readWeight reads a qvalue (RFC 9110 section 12.4.2) in thousandths.
func readWeight(s string) (int, bool) {
	whole, fraction, _ := strings.Cut(s, ".")
	if whole != "0" && whole != "1" || len(fraction) > 3 {
		return 0, false
	}
	weight := int(whole[0]-'0') * 1000
	for i, unit := 0, 100; i < len(fraction); i, unit = i+1, unit/10 {
		if fraction[i] < '0' || fraction[i] > '9' {
			return 0, false
		}
		weight += int(fraction[i]-'0') * unit
	}
	return weight, weight <= 1000
}

// cutUnquoted is strings.Cut at a separator that is not inside a quoted string.
func cutUnquoted(s string, sep byte) (before, after string, found bool) {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '"':
			quoted = !quoted
		case quoted && s[i] == '\\':
			i++
		case !quoted && s[i] == sep:
			return s[:i], s[i+1:], true
		}
	}
	return s, "", false
}

func trim(s string) string { return strings.Trim(s, " \t") }
