package enforce

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/origin"
)

// SchemaVersion is the value of [LogRecord.Schema]. No release has written schema 1.
const SchemaVersion = 2

// maxShown bounds the bytes of foreign text (a rule, a User-Agent) that are shown or logged.
const maxShown = 512

// LogRecord is a [Decision] in the form that is shown and stored: the object "robots" of the access
// log, of refusals, of `robots check` and of the admin API. Foreign text in it is cut,
// and escaped where it is not printable.
//
// The JSON names are those of the log, and are stable within a schema. Fields with omitempty are
// left out where they are empty.
type LogRecord struct {
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
	FetchedAs    string   `json:"fetched_as,omitempty"`
	Group        string   `json:"group,omitempty"`
	Rule         string   `json:"rule,omitempty"`
	Line         int      `json:"line,omitempty"`
	Form         PathForm `json:"form,omitempty"`
	SHA256       string   `json:"sha256,omitempty"`
	AgeSeconds   int64    `json:"age_s,omitempty"`
	Source       string   `json:"source"`
	PathVisible  bool     `json:"path_visible"`
	PathSum      string   `json:"path_sum,omitempty"` // PathSum of the path that was matched
	WaitMillis   int64    `json:"wait_ms,omitempty"`
	CrawlDelay   float64  `json:"crawl_delay_s,omitempty"`
	// DialMillis and Address are of the sending, which comes after the decision: the caller sets them.
	DialMillis int64  `json:"dial_ms,omitempty"`
	Address    string `json:"address,omitempty"`
	Exception  string `json:"exception,omitempty"`
	// UserAgentSent is the value that left, if the agent's block sets it. Signed is the thumbprint of
	// the key that signed the request, SignatureForm the form of Signature-Agent, and Unsigned why the
	// request of an agent that signs has no signature. The caller sets them.
	UserAgentSent string `json:"user_agent_sent,omitempty"`
	Signed        string `json:"signed,omitempty"`
	SignatureForm string `json:"signature_form,omitempty"`
	Unsigned      string `json:"unsigned,omitempty"`
	// The exception's order, if it was given at run time: its id, who gave it, for which ticket, and
	// when it ends.
	ExceptionOrder  string  `json:"exception_order,omitempty"`
	ExceptionBy     string  `json:"exception_by,omitempty"`
	ExceptionTicket string  `json:"exception_ticket,omitempty"`
	ExceptionUntil  Seconds `json:"exception_until,omitempty"`
	// Gateway, Version and Config are the name, the build and the configuration's digest of the
	// gateway that writes a log. The caller sets them.
	Gateway string `json:"gateway,omitempty"`
	Version string `json:"version,omitempty"`
	Config  string `json:"config,omitempty"`
	// DecidedAt is [Decision.At], SentAt when the request went out, none if it did not, or nobody saw
	// when, and EndedAt when it was over. The caller sets them.
	DecidedAt Seconds `json:"decided_at,omitempty"`
	SentAt    Seconds `json:"sent_at,omitempty"`
	EndedAt   Seconds `json:"ended_at,omitempty"`
	// Removed is how many lines of the request's header were kept back because the agent's block does
	// not let them pass. The caller sets it.
	Removed int `json:"removed,omitempty"`
	// PaymentRequired says that the site answered 402 (Payment Required). The caller sets it.
	PaymentRequired bool `json:"payment_required,omitempty"`
	// BudgetLeft is how many requests the agent had left that day, as far as the gateway knew; nil
	// without such a limit. The caller sets it.
	BudgetLeft *int64 `json:"budget_left,omitempty"`
	// Signals and Preferences are what a site says of the use of its content, each as a member of an
	// RFC 9651 dictionary, such as "train-ai=n;from=robots;line=4".
	Signals     []string `json:"signals,omitempty"`
	Preferences []string `json:"preferences,omitempty"`
	// SignalsRead names where they were looked for. SignalFields are the rules of the TDM file and the
	// fields of the answer that they are from, SignalsCut says that not all of these are there.
	SignalsRead  string   `json:"signals_read,omitempty"`
	Vocabulary   string   `json:"vocabulary,omitempty"` // by which they were read
	SignalFields []string `json:"signal_fields,omitempty"`
	SignalsCut   bool     `json:"signals_cut,omitempty"`
	// Purposes are the agent's, AlsoObey the tokens that it obeys beside its own. Conflict is the
	// preference that stands against one of the purposes.
	Purposes []string `json:"purposes,omitempty"`
	AlsoObey []string `json:"also_obey,omitempty"`
	Conflict string   `json:"preference_conflict,omitempty"`
	// Lost is how many lines the log did not take, since LostSince and before this one.
	Lost      int64   `json:"lost,omitempty"`
	LostSince Seconds `json:"lost_since,omitempty"`
}

// Seconds is a time of the log in seconds since 1970, which a float64 holds to a quarter of a
// microsecond. Zero is no time.
type Seconds float64

// SecondsOf is a time as the log has it.
func SecondsOf(t time.Time) Seconds {
	if t.IsZero() {
		return 0
	}
	return Seconds(float64(t.UnixMicro()) / 1e6)
}

// Time is the time; zero stays zero.
func (s Seconds) Time() time.Time {
	if s <= 0 {
		return time.Time{}
	}
	return time.UnixMicro(int64(math.Round(float64(s) * 1e6)))
}

// UnmarshalJSON implements [json.Unmarshaler]. If a filter of the log has replaced
// the number, the time is zero.
func (s *Seconds) UnmarshalJSON(data []byte) error {
	if n, err := strconv.ParseFloat(string(data), 64); err == nil {
		*s = Seconds(n)
	}
	return nil
}

// recordFields are the fields of a [LogRecord] in order.
var recordFields = func() (all []recordField) {
	for f := range reflect.TypeFor[LogRecord]().Fields() {
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
// Each value is of the kind String, Bool, Int, Int64 or Float64, or is a []string or a *int64.
func (r *LogRecord) Fields() iter.Seq2[string, reflect.Value] {
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

// Field returns the value of the field with a JSON name, also an empty one. It reports false for a
// name that no field has.
func (r *LogRecord) Field(name string) (reflect.Value, bool) {
	at := slices.IndexFunc(recordFields, func(f recordField) bool { return f.name == name })
	if at < 0 {
		return reflect.Value{}, false
	}
	return reflect.ValueOf(r).Elem().Field(at), true
}

// PathSum is the first four hexadecimal digits of the SHA-256 of a path and, behind a dash, of its
// query, if it has one. It tells whether a log shows the path still as it was. Anyone who guesses
// what a filter took out of the log can test the guess by it, and is wrong once in 65,536 times.
func PathSum(path string) string {
	path, query, has := strings.Cut(path, "?")
	sum := sha256.Sum256([]byte(path))
	if !has {
		return hex.EncodeToString(sum[:2])
	}
	of := sha256.Sum256([]byte(query))
	return hex.EncodeToString(sum[:2]) + "-" + hex.EncodeToString(of[:2])
}

// shownAll is a list of foreign texts for the log.
func shownAll(list []string) []string {
	for i, text := range list {
		if shown := escape.Printable(text, maxSignalFields); shown != text {
			list = slices.Clone(list) // others read it
			list[i] = shown
		}
	}
	return list
}

// Record returns d in the form that is shown and stored.
func (d Decision) Record() LogRecord {
	r := LogRecord{
		Schema:       SchemaVersion,
		Decision:     d.Outcome(),
		Reason:       d.Reason,
		Detail:       escape.Printable(d.Detail, maxShown),
		Mode:         string(cmp.Or(d.Mode, ModeEnforce)),
		WouldDeny:    d.WouldDeny,
		Agent:        escape.Printable(d.Agent, maxToken),
		Tokens:       d.Tokens, // of letters, digits, "-", "_" and "." (robotstxt.IsProductName)
		Owner:        escape.Printable(d.Owner, maxText),
		Contact:      escape.Printable(d.Contact, maxText),
		IdentifiedBy: d.IdentifiedBy,
		UserAgent:    escape.Printable(d.UserAgent, maxShown),
		State:        d.State.String(),
		Cause:        string(d.Cause),
		FetchedAs:    d.FetchedAs, // as Tokens
		Group:        escape.Visible(d.Group, maxToken),
		Rule:         escape.Visible(d.Rule, maxShown),
		Line:         d.Line,
		Form:         d.Form,
		SHA256:       fetch.Sum(d.SHA256).Hex(),
		AgeSeconds:   int64(d.Age / time.Second),
		Source:       d.Source.String(),
		PathVisible:  d.PathVisible,
		WaitMillis:   d.Wait.Milliseconds(),
		CrawlDelay:   d.CrawlDelay.Seconds(),
		Exception:    escape.Printable(d.Exception, maxShown),
		Signals:      d.Signals.Names(),
		Preferences:  statements(d.Preferences), // a purpose is of letters, digits and "_-.*" (preferences.IsPurpose)
		SignalFields: shownAll(d.SignalFields),
		SignalsCut:   d.SignalsCut,
		Purposes:     d.Purposes,
		AlsoObey:     d.AlsoObey,
		Conflict:     escape.Printable(d.Conflict, maxShown),
	}
	if d.PathVisible && d.Origin != (origin.Origin{}) {
		if r.SignalsRead = d.use.reads.String(); r.SignalsRead != "" {
			r.Vocabulary = Vocabulary
		}
	}
	if o := d.order; o != nil {
		r.ExceptionOrder, r.ExceptionUntil = o.ID, SecondsOf(o.Until)
		r.ExceptionBy, r.ExceptionTicket = escape.Printable(o.By, maxText), escape.Printable(o.Ticket, maxText)
	}
	if d.matched != "" {
		r.PathSum = PathSum(d.matched)
	}
	if !d.Reason.Valid() {
		r.Reason = ReasonInternal
	}
	if !d.Origin.IsZero() {
		r.RobotsURL = d.Origin.RobotsURL()
		r.Origin = strings.TrimSuffix(r.RobotsURL, "/robots.txt")
	}
	return r
}
