package preferences

import (
	"net/http"
	"slices"
	"strings"
)

// Marks are robots directives that speak of a use, as they hold for the agent.
type Marks struct {
	NoIndex   bool // search: n
	NoArchive bool // archive: n
	NoAI      bool // train-ai: n
}

func (s *Set) marks(m Marks, from Source) {
	add := func(set bool, purpose, word string) {
		if set {
			s.statements = append(s.statements, Statement{Purpose: purpose, Value: No, From: from, Raw: word})
		}
	}
	add(m.NoIndex, Search, "noindex")
	add(m.NoArchive, Archive, "noarchive")
	add(m.NoAI, TrainAI, "noai")
}

// maxFields is how many lines of one field are read.
const maxFields = 32

// lines returns the lines of a field that are read. Its name must be in canonical form.
func lines(h http.Header, name string) []string { return h[name][:min(len(h[name]), maxFields)] }

// Fields returns what the fields of a response say: Content-Usage (draft-ietf-aipref-attach-05
// section 2), Content-Signal, tdm-reservation and tdm-policy (TDMRep), licences in Link (RSL 1.0),
// and the directives of X-Robots-Tag, which others have read.
func Fields(h http.Header, x Marks) Set {
	var s Set
	if usage := h["Content-Usage"]; len(usage) > 0 && len(usage) <= maxFields {
		s.usage(usage, ContentUsage, 0)
	}
	for _, l := range lines(h, "Content-Signal") {
		s.signal(l, ContentSignal, 0)
		s = s.settled()
	}
	for _, l := range lines(h, "Tdm-Reservation") {
		s.reserve(TDMField, strings.Trim(l, blanks), "")
	}
	for _, l := range lines(h, "Tdm-Policy") {
		s.reserve(TDMField, "", strings.Trim(l, blanks))
	}
	for _, l := range lines(h, "Link") {
		s.link(l)
	}
	s.marks(x, XRobotsTag)
	return s.settled()
}

// Page is what the meta and link elements of an HTML page say.
type Page struct {
	Marks                 // of the robots meta elements
	Reservation  string   // content of the meta element tdm-reservation
	Policy       string   // content of the meta element tdm-policy
	LicenceLinks []string // href of link elements that have rel=license and type application/rsl+xml
}

// Of returns what a page says.
func (p Page) Of() Set {
	var s Set
	s.marks(p.Marks, Meta)
	s.reserve(TDMMeta, strings.Trim(p.Reservation, blanks), strings.Trim(p.Policy, blanks))
	for _, url := range p.LicenceLinks {
		s.licence(url, Meta, 0)
	}
	return s.settled()
}

// link adds the licences of a Link field line (RFC 8288 section 3): those with the relation license
// and the type application/rsl+xml. Of parameters that come again the first counts (sections 3.3 and
// 3.4.1). A link with an anchor is about another resource than the response (section 3.2).
func (s *Set) link(text string) {
	if len(text) > maxText || !strings.Contains(text, "+") { // the type has one
		return
	}
	for len(text) > 0 {
		text = strings.TrimLeft(text, blanks+",")
		if !strings.HasPrefix(text, "<") {
			return
		}
		url, rest, ok := strings.Cut(text[1:], ">")
		if !ok {
			return
		}
		var hasRel, isLicence, hasType, isRSL, isElsewhere bool
		for {
			var name, value string
			if name, value, rest, ok = nextParam(rest); !ok {
				break
			}
			switch {
			case name == "rel" && !hasRel:
				hasRel = true
				isLicence = slices.ContainsFunc(strings.Fields(value), func(r string) bool { return strings.EqualFold(r, "license") })
			case name == "type" && !hasType:
				hasType, isRSL = true, strings.EqualFold(value, "application/rsl+xml")
			case name == "anchor":
				isElsewhere = true
			}
		}
		if isLicence && isRSL && !isElsewhere {
			s.licence(strings.Trim(url, blanks), Link, 0)
		}
		text = rest
	}
}

// nextParam returns the next parameter of a link: its name in lower case, its value without quotes,
// and what follows. It reports false where no ; begins one.
func nextParam(text string) (name, value, rest string, ok bool) {
	text = strings.TrimLeft(text, blanks)
	if !strings.HasPrefix(text, ";") {
		return "", "", text, false
	}
	text = strings.TrimLeft(text[1:], blanks)
	end := strings.IndexAny(text, "=;,")
	if end < 0 {
		end = len(text)
	}
	name, text = strings.ToLower(strings.Trim(text[:end], blanks)), text[end:]
	if !strings.HasPrefix(text, "=") {
		return name, "", text, true
	}
	text = strings.TrimLeft(text[1:], blanks)
	if strings.HasPrefix(text, `"`) {
		value, rest = unquote(text[1:])
		return name, value, rest, true
	}
	if end = strings.IndexAny(text, ";,"); end < 0 {
		end = len(text)
	}
	return name, strings.Trim(text[:end], blanks), text[end:], true
}

// unquote reads a quoted string (RFC 9110 section 5.6.4) from behind its first quote.
func unquote(text string) (value, rest string) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return b.String(), text[i+1:]
		case c == '\\' && i+1 < len(text):
			i++
			b.WriteByte(text[i])
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), ""
}
