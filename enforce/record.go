package enforce

import (
	"encoding/hex"
	"iter"
	"reflect"
	"slices"
	"strings"
	"time"
)

// SchemaVersion is the value of [Record.Schema].
const SchemaVersion = 1

// maxShown bounds the bytes of foreign text (a rule, a User-Agent) in what is shown or logged.
const maxShown = 512

// Record is a [Decision] in the form that is shown and stored: the object "robots" of the access
// log (DESIGN §9), of refusals, of `robots check` and of the admin API. Foreign text in it is cut,
// and escaped where it is not printable.
//
// The JSON names are those of the log, and are stable within a schema. Fields with omitempty are
// left out where they are empty.
type Record struct {
	Schema       int      `json:"schema"`
	Decision     string   `json:"decision"`
	Reason       Reason   `json:"reason"`
	Detail       string   `json:"detail,omitempty"`
	Mode         string   `json:"mode"`
	WouldDeny    bool     `json:"would_deny"`
	Agent        string   `json:"agent"`
	Tokens       []string `json:"tokens,omitempty"`
	Owner        string   `json:"owner,omitempty"`
	Contact      string   `json:"contact,omitempty"`
	IdentifiedBy string   `json:"identified_by,omitempty"`
	UserAgent    string   `json:"user_agent,omitempty"`
	Origin       string   `json:"origin"`
	RobotsURL    string   `json:"robots_url"`
	State        string   `json:"state"`
	Cause        string   `json:"cause,omitempty"`
	Group        string   `json:"group,omitempty"`
	Rule         string   `json:"rule,omitempty"`
	Line         int      `json:"line,omitempty"`
	Form         PathForm `json:"form,omitempty"`
	SHA256       string   `json:"sha256,omitempty"`
	AgeSeconds   int64    `json:"age_s,omitempty"`
	Source       string   `json:"source"`
	PathVisible  bool     `json:"path_visible"`
	WaitMillis   int64    `json:"wait_ms,omitempty"`
	CrawlDelay   float64  `json:"crawl_delay_s,omitempty"`
	// DialMillis and Address are of the sending, which comes after the decision: the caller
	// sets them.
	DialMillis int64  `json:"dial_ms,omitempty"`
	Address    string `json:"address,omitempty"`
	Exception  string `json:"exception,omitempty"`
	// Gateway and Version are the name and the build of the gateway that writes a log. The
	// caller sets them.
	Gateway string `json:"gateway,omitempty"`
	Version string `json:"version,omitempty"`
}

// recordFields are the fields of a [Record] in order.
var recordFields = func() (all []recordField) {
	for f := range reflect.TypeFor[Record]().Fields() {
		name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
		all = append(all, recordField{name, option == "omitempty"})
	}
	return all
}()

type recordField struct {
	name      string
	omitEmpty bool
}

// Fields yields the fields of r by their JSON names, in order, but for those that JSON leaves out.
// Each value is of the kind String, Bool, Int, Int64 or Float64, or is a []string.
func (r *Record) Fields() iter.Seq2[string, reflect.Value] {
	return func(yield func(string, reflect.Value) bool) {
		values := reflect.ValueOf(r).Elem()
		for i, f := range recordFields {
			v := values.Field(i)
			if f.omitEmpty && v.IsZero() {
				continue
			}
			if !yield(f.name, v) {
				return
			}
		}
	}
}

// Field returns the value of the field with a JSON name, also an empty one. It reports false for
// a name that no field has.
func (r *Record) Field(name string) (reflect.Value, bool) {
	at := slices.IndexFunc(recordFields, func(f recordField) bool { return f.name == name })
	if at < 0 {
		return reflect.Value{}, false
	}
	return reflect.ValueOf(r).Elem().Field(at), true
}

// Record returns d in the form that is shown and stored.
func (d Decision) Record() Record {
	r := Record{
		Schema:       SchemaVersion,
		Decision:     d.Outcome(),
		Reason:       d.Reason,
		Detail:       printable(d.Detail, maxShown),
		Mode:         d.Mode.String(),
		WouldDeny:    d.WouldDeny,
		Agent:        printable(d.Agent, maxToken),
		Tokens:       shownTokens(d.Tokens),
		Owner:        printable(d.Owner, maxText),
		Contact:      printable(d.Contact, maxText),
		IdentifiedBy: d.IdentifiedBy,
		UserAgent:    printable(d.UserAgent, maxShown),
		Origin:       d.originText(),
		RobotsURL:    d.RobotsURL,
		State:        d.State.String(),
		Cause:        string(d.Cause),
		Group:        printable(d.Group, maxToken),
		Rule:         printable(d.Rule, maxShown),
		Line:         d.Line,
		Form:         d.Form,
		AgeSeconds:   int64(d.Age / time.Second),
		Source:       d.Source.String(),
		PathVisible:  d.PathVisible,
		WaitMillis:   d.Wait.Milliseconds(),
		CrawlDelay:   d.CrawlDelay.Seconds(),
		Exception:    printable(d.Exception, maxShown),
	}
	if !d.Reason.Valid() {
		r.Reason = ReasonInternal
	}
	if d.SHA256 != [32]byte{} {
		var text [2 * len(d.SHA256)]byte
		hex.Encode(text[:], d.SHA256[:])
		r.SHA256 = string(text[:])
	}
	return r
}

// originText is Origin.String, cut out of RobotsURL rather than built once more.
func (d Decision) originText() string {
	if o, ok := strings.CutSuffix(d.RobotsURL, "/robots.txt"); ok {
		return o
	}
	return d.Origin.String()
}

// shownTokens returns the tokens fit to be shown; the same slice if they are.
func shownTokens(tokens []string) []string {
	fit := func(s string) bool { return printable(s, maxToken) == s }
	if !slices.ContainsFunc(tokens, func(s string) bool { return !fit(s) }) {
		return tokens
	}
	shown := make([]string, len(tokens))
	for i, s := range tokens {
		shown[i] = printable(s, maxToken)
	}
	return shown
}
