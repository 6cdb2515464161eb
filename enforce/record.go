package enforce

import (
	"encoding/hex"
	"slices"
	"strings"
	"time"
)

// The names of the fields of a [Record]. They are stable within a schema: logs are read by
// machines.
const (
	FieldSchema       = "schema"
	FieldDecision     = "decision"
	FieldReason       = "reason"
	FieldDetail       = "detail"
	FieldMode         = "mode"
	FieldWouldDeny    = "would_deny"
	FieldAgent        = "agent"
	FieldTokens       = "tokens"
	FieldOwner        = "owner"
	FieldContact      = "contact"
	FieldIdentifiedBy = "identified_by"
	FieldUserAgent    = "user_agent"
	FieldOrigin       = "origin"
	FieldRobotsURL    = "robots_url"
	FieldState        = "state"
	FieldCause        = "cause"
	FieldGroup        = "group"
	FieldRule         = "rule"
	FieldLine         = "line"
	FieldForm         = "form"
	FieldSHA256       = "sha256"
	FieldAge          = "age_s"
	FieldSource       = "source"
	FieldPathVisible  = "path_visible"
	FieldWait         = "wait_ms"
	FieldCrawlDelay   = "crawl_delay_s"
	FieldDial         = "dial_ms"
	FieldAddress      = "address"
	FieldException    = "exception"
	FieldGateway      = "gateway"
	FieldVersion      = "version"
)

// Fields lists the names of all fields, in the order of [Record].
func Fields() []string {
	return []string{
		FieldSchema, FieldDecision, FieldReason, FieldDetail, FieldMode,
		FieldWouldDeny, FieldAgent, FieldTokens, FieldOwner, FieldContact, FieldIdentifiedBy, FieldUserAgent,
		FieldOrigin, FieldRobotsURL, FieldState, FieldCause, FieldGroup,
		FieldRule, FieldLine, FieldForm, FieldSHA256, FieldAge, FieldSource,
		FieldPathVisible, FieldWait, FieldCrawlDelay, FieldDial, FieldAddress,
		FieldException, FieldGateway, FieldVersion,
	}
}

// SchemaVersion is the value of [FieldSchema].
const SchemaVersion = 1

// maxShown bounds the octets of foreign text (a rule, a User-Agent) in what is shown or logged.
const maxShown = 512

// Record is a [Decision] in the form that everyone gets to see: the object "robots" of the
// access log (DESIGN §9), of refusals, of `robots check` and of the admin API. Foreign text in
// it is cut, and escaped where it is not printable.
//
// Fields with omitempty are left out where they say nothing.
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

// Record returns d as everyone gets to see it.
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
