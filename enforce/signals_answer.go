package enforce

import (
	"net/http"
	"slices"
	"strings"

	"github.com/crawlgate/crawlgate/robotstxt"
	"github.com/crawlgate/crawlgate/signals/directives"
	"github.com/crawlgate/crawlgate/signals/htmlhead"
	"github.com/crawlgate/crawlgate/signals/preferences"
)

// signalFields are the fields of an answer that are read, in the order in which they are logged.
var signalFields = []string{"X-Robots-Tag", "Content-Usage", "Content-Signal", "Tdm-Reservation", "Tdm-Policy", "Link"}

// The names under which the tags of a page and the rules of a TDM file are logged. A name of a
// field has no space.
const (
	metaField    = "meta "
	licenceField = "link license"
	tdmFileField = "tdm file"
)

// Vocabulary is the reading of preferences by which [Reread] computes a line again.
const Vocabulary = preferences.Vocabulary

// maxSignalFields bounds the bytes of fields and tags that a log line has.
const maxSignalFields = 1 << 10

// AnswerSignals is what an answer says about the use of its content, in the fields of its header
// and in the tags of its page's head.
type AnswerSignals struct {
	Header http.Header
	Page   htmlhead.Metas
	// file has the rules of the TDM file that applied: only in a log.
	file preferences.TDMRules
}

// ReadAnswer adds what the fields of the answer say. It returns the value of the field that shows
// the crawler everything that the site says, or "" if the site says nothing. Afterwards the
// decision may refuse; then the answer must not reach the crawler. ReadAnswer does not read the
// fields of a redirect or an error: see [HasContent].
func (d *Decision) ReadAnswer(status int, header http.Header) (dictionary string) {
	if d.reads.Headers && HasContent(status) {
		d.take(AnswerSignals{Header: header}, false)
	}
	return d.dictionary()
}

// HasContent reports whether an answer with this status has the content, or confirms the content
// that the client has (RFC 9110 section 15.4.5). A preference applies to that content
// (draft-ietf-aipref-attach-05 section 2). An error or a redirect has none, and the crawler needs
// its status and fields.
func HasContent(status int) bool { return status/100 == 2 || status == http.StatusNotModified }

// Page is the beginning of an answer that is a page, as received.
type Page struct {
	Head   []byte
	Whole  bool     // the page ends there
	Type   string   // Content-Type
	Coding []string // Content-Encoding
	Sent   bool     // the crawler already has the answer, so nothing can be refused
}

// ReadPage adds what the tags in the head of a page say, like ReadAnswer.
func (d *Decision) ReadPage(p Page) (dictionary string) {
	o := htmlhead.Options{XHTML: htmlhead.IsXHTML(p.Type), Whole: p.Whole}
	o.Names = slices.DeleteFunc(d.names(), directives.Reserved)
	coding := strings.Join(p.Coding, ",") // of two lines too, which are two codings
	tags, cut := htmlhead.Read(coding, p.Head, HTMLMax, o)
	d.SignalsCut = d.SignalsCut || cut
	d.take(AnswerSignals{Page: tags}, p.Sent)
	return d.dictionary()
}

// take notes for the log what an answer says, if it says something, and adds it.
func (d *Decision) take(a AnswerSignals, sent bool) {
	fields, cut := a.appendTo(slices.Clip(d.SignalFields))
	says := cut || len(fields) > len(d.SignalFields)
	d.SignalFields, d.SignalsCut = fields, d.SignalsCut || cut
	if says {
		d.add(a, sent)
	}
}

// names returns the names by which a page addresses the agent.
func (d *Decision) names() []string { return slices.Concat(d.Tokens, d.AlsoObey) }

// add adds the preferences of an answer to the known ones, and decides by them.
func (d *Decision) add(a AnswerSignals, sent bool) {
	var said directives.Set
	said, d.Preferences = a.Read(d.Tokens, d.AlsoObey, d.Preferences)
	d.Signals = d.Signals.Join(said)
	d.SignalsCut = d.SignalsCut || said.Cut || d.Preferences.Cut()
	d.judge(sent)
}

// Recall reads the answer of a log line again, for this decision on its request. It reports false
// if the line lacks something that could refuse the request.
func (d Decision) Recall(r *LogRecord) (again Decision, known bool) {
	if d.preferMode == PreferencesLog || len(d.Purposes) == 0 || !d.Allowed || d.WouldDeny || !d.PathVisible || d.unpaced {
		return d, true // nothing in an answer changes it
	}
	reads := d.reads
	answer, known := parseFields(r.SignalFields)
	if !known || r.SignalsCut || reads.Headers && !strings.Contains(r.SignalsRead, "headers") {
		return d, false
	}
	if reads.Headers {
		d.add(AnswerSignals{Header: answer.Header}, false)
	}
	if d.Conflict != "" || reads.HTML != HTMLHold {
		return d, true
	}
	names := slices.Concat(r.Tokens, r.AlsoObey)
	isOther := func(name string) bool { return !containsFold(names, name) }
	keptBack := r.RefusedByAnswer() && !r.WouldDeny && !strings.Contains(r.Conflict, ";from="+preferences.Meta.From())
	if keptBack || !strings.Contains(r.SignalsRead, "html") || slices.ContainsFunc(d.names(), isOther) {
		return d, false
	}
	d.add(AnswerSignals{Page: answer.Page}, false)
	return d, true
}

// RefusedByAnswer reports whether a field or a tag of the answer, or the TDM file, refused the
// request or would have. It is false for a line of robots.txt.
func (r *LogRecord) RefusedByAnswer() bool {
	source := ";from=" + preferences.RobotsContentUsage.From()
	return r.Reason == ReasonPreferenceDenied && !strings.Contains(r.Conflict, source) &&
		!strings.HasSuffix(r.Conflict, "="+preferences.Unknown.String())
}

func (d *Decision) dictionary() (dictionary string) {
	if d.Preferences.Empty() && d.Signals.Empty() {
		return ""
	}
	dictionary, cut := preferences.Dictionary(d.Preferences, d.Signals.Directives())
	d.SignalsCut = d.SignalsCut || cut
	return dictionary
}

// Read returns what an answer says to an agent with some product tokens, and its preferences
// together with the known ones.
func (a AnswerSignals) Read(tokens, alsoObey []string, before preferences.Set) (directives.Set, preferences.Set) {
	names := tokens
	if len(alsoObey) > 0 {
		names = slices.Concat(tokens, alsoObey)
	}
	header, tags := directives.Header(a.Header["X-Robots-Tag"], names), directives.Meta(a.Page.Robots, names)
	page := preferences.Page(tags.Flags, a.Page.TDM, a.Page.Licenses)
	return header.Join(tags), preferences.Join(before, preferences.Fields(a.Header, header.Flags), page)
}

// appendTo appends the fields and tags, as "Name: value", up to a number of bytes.
func (a AnswerSignals) appendTo(dst []string) (fields []string, cut bool) {
	for _, name := range signalFields {
		for _, value := range a.Header[name] {
			if name == "Link" && !strings.Contains(value, "license") {
				continue
			}
			if dst, cut = appendField(dst, name, value); cut {
				return dst, true
			}
		}
	}
	for _, tags := range [][]htmlhead.Named{a.Page.Robots, a.Page.TDM} {
		for _, tag := range tags {
			if dst, cut = appendField(dst, metaField+tag.Name, tag.Content); cut {
				return dst, true
			}
		}
	}
	for _, url := range a.Page.Licenses {
		if dst, cut = appendField(dst, licenceField, url); cut {
			return dst, true
		}
	}
	return dst, false
}

// appendField appends a field, unless there would be too many bytes.
func appendField(dst []string, name, value string) (fields []string, cut bool) {
	size := len(name) + len(": ") + len(value)
	for _, f := range dst {
		size += len(f)
	}
	if size > maxSignalFields {
		return dst, true
	}
	return append(dst, name+": "+value), false
}

// parseFields reads the fields, tags and rules of a line. It reports false for a value that may
// have been escaped for the log.
func parseFields(fields []string) (AnswerSignals, bool) {
	a := AnswerSignals{Header: make(http.Header)}
	var rules []string // objects of JSON
	for _, field := range fields {
		name, value, found := strings.Cut(field, ": ")
		if !found || strings.Contains(value, `\`) {
			return AnswerSignals{}, false
		}
		tag, isMeta := strings.CutPrefix(name, metaField)
		switch {
		case isMeta && strings.HasPrefix(tag, "tdm-"):
			a.Page.TDM = append(a.Page.TDM, htmlhead.Named{Name: tag, Content: value})
		case isMeta:
			a.Page.Robots = append(a.Page.Robots, htmlhead.Named{Name: tag, Content: value})
		case name == tdmFileField:
			rules = append(rules, value)
		case name == licenceField:
			a.Page.Licenses = append(a.Page.Licenses, value)
		default:
			a.Header[name] = append(a.Header[name], value)
		}
	}
	var err error
	a.file, err = preferences.ParseTDMFile([]byte("[" + strings.Join(rules, ",") + "]"))
	return a, err == nil
}

// TDMFile returns the rules of the site's TDM file that applied to the request. It reports false
// if the line does not have all of them.
func (r *LogRecord) TDMFile() (preferences.TDMRules, bool) {
	a, ok := parseFields(r.SignalFields)
	return a.file, ok
}

// Reread computes the signals and preferences of a log line again, from the rules of its text (nil
// if there was none) and from its fields. It reports false if the line lacks some of their
// sources.
func Reread(r *LogRecord, rules *robotstxt.Ruleset, a robotstxt.Agent, path string) (signals, wishes []string, ok bool) {
	var known preferences.Set
	if strings.Contains(r.SignalsRead, "robots_txt") && rules != nil {
		paths := PathsStrict
		if r.Form == PathAsSent {
			paths = PathsAsSent
		}
		known = Bind(rules, a, r.AlsoObey).Preferences(path, paths)
	}
	answer, ok := parseFields(r.SignalFields)
	if !ok {
		return nil, nil, false
	}
	known = preferences.Join(known, answer.file.Apply(formsOf(path, PathsStrict)...).Set())
	said, known := answer.Read(r.Tokens, r.AlsoObey, known)
	return said.Names(), statements(known), !r.SignalsCut
}
