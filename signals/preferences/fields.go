package preferences

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/crawlgate/crawlgate/signals/directives"
)

// flags adds what the robots directives say about a use.
func (s *Set) flags(said directives.Flags, from Source) {
	purposes := [...]string{Search, Archive, TrainAI}
	for i, flag := range [...]directives.Flags{directives.NoIndex, directives.NoArchive, directives.NoAI} {
		if said&flag != 0 {
			s.say("", purposes[i], Statement{Value: No, From: from})
		}
	}
}

// maxFields is how many lines of one field are read.
const maxFields = 32

// lines returns the lines of a field to read. Its name must be in canonical form.
func (s *Set) lines(h http.Header, name string) []string {
	s.cut = s.cut || len(h[name]) > maxFields
	return h[name][:min(len(h[name]), maxFields)]
}

// Fields returns what the fields of a response say: Content-Usage (draft-ietf-aipref-attach-05
// section 2), Content-Signal, tdm-reservation (TDMRep), licences in Link (RSL 1.0), and the
// directives of X-Robots-Tag that apply to the agent, which the caller has read.
func Fields(h http.Header, x directives.Flags) Set {
	var s Set
	if usage := s.lines(h, "Content-Usage"); len(usage) > 0 && len(usage) == len(h["Content-Usage"]) {
		s.usage(usage, ContentUsage, 0)
	}
	for _, l := range s.lines(h, "Content-Signal") {
		s.signal(l, ContentSignal, 0)
	}
	for _, l := range s.lines(h, "Tdm-Reservation") {
		s.reserve(TDMField, strings.Trim(l, blanks))
	}
	for _, l := range s.lines(h, "Link") {
		s.link(l)
	}
	s.flags(x, XRobotsTag)
	return s.normalized()
}

// Page returns what the elements of an HTML page say: the robots meta elements that apply to the
// agent, the meta elements of TDMRep, and the licences of link elements that have rel=license and
// type application/rsl+xml.
func Page(said directives.Flags, tdm []directives.Named, licences []string) Set {
	var s Set
	s.flags(said, Meta)
	for _, tag := range tdm {
		if tag.Name == "tdm-reservation" {
			s.reserve(TDMMeta, strings.TrimSpace(tag.Content))
		}
	}
	for _, url := range licences {
		s.licence(url, Meta, 0)
	}
	return s.normalized()
}

// A link of a Link field line, with all of its parameters, and one parameter (RFC 8288 section 3).
var (
	oneLink  = regexp.MustCompile(`<([^>]*)>((?:[ \t]*;[^;,="]*(?:=[ \t]*(?:"(?:[^"\\]|\\.)*"|[^;,"]*))?)*)`)
	oneParam = regexp.MustCompile(`;([^;,="]*)(?:=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^;,"]*)))?`)
	aPair    = regexp.MustCompile(`\\(.)`) // RFC 9110 section 5.6.4
)

// link adds the licences of a Link field line: those with the relation license and the type
// application/rsl+xml. If a parameter is repeated, the first one counts (RFC 8288 sections 3.3 and
// 3.4.1). A link with an anchor is about a different resource (section 3.2).
func (s *Set) link(text string) {
	if !strings.Contains(text, "+") { // the type has one
		return
	}
	if len(text) > maxText {
		s.cut = true
		return
	}
	for _, link := range oneLink.FindAllStringSubmatch(text, -1) {
		params := make(map[string]string)
		for _, p := range oneParam.FindAllStringSubmatch(link[2], -1) {
			name := strings.ToLower(strings.Trim(p[1], blanks))
			if _, again := params[name]; !again {
				params[name] = aPair.ReplaceAllString(p[2], "$1") + strings.Trim(p[3], blanks)
			}
		}
		isLicence := func(relation string) bool { return strings.EqualFold(relation, "license") }
		_, isElsewhere := params["anchor"]
		if !isElsewhere && strings.EqualFold(params["type"], "application/rsl+xml") &&
			slices.ContainsFunc(strings.Fields(params["rel"]), isLicence) {
			s.licence(strings.Trim(link[1], blanks), Link, 0)
		}
	}
}
