package enforce

import (
	"mime"
	"strconv"
	"strings"
)

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

// formOf finds the form that a media range asks for. JSON and HTML have to be asked for by name.
var formOf = map[string]Form{
	"application/json":         FormJSON,
	"application/problem+json": FormJSON,
	"text/html":                FormHTML,
	"application/xhtml+xml":    FormHTML,
	"text/plain":               FormText,
	"text/*":                   FormText,
	"*/*":                      FormText,
}

// Negotiate chooses the form of a refusal by the value of an Accept field (RFC 9110 section
// 12.5.1), several fields joined by commas: the form of the media range with the greatest weight,
// the first of equal ones. A field that cannot be read gives text, and so does one that takes none
// of the three: a refusal is not withheld for its form.
func Negotiate(accept string) Form {
	best, form := 0.0, FormText
	for mediaRange := range strings.SplitSeq(accept, ",") {
		name, params, err := mime.ParseMediaType(mediaRange)
		if err != nil {
			continue
		}
		f, ours := formOf[name]
		if weight := weightOf(params); ours && weight > best {
			best, form = weight, f
		}
	}
	return form
}

// weightOf reads a weight (RFC 9110 section 12.4.2): from 0 to 1, 0 where it cannot be read.
func weightOf(params map[string]string) float64 {
	q, ok := params["q"]
	if !ok {
		return 1
	}
	weight, err := strconv.ParseFloat(q, 64)
	if err != nil || weight > 1 || len(q) > len("0.000") {
		return 0
	}
	return weight
}
