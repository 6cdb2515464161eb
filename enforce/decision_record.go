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
// log, of refusals, of `robots check` and of the admin API. Foreign text in it is cut, and
// unprintable characters are escaped.
//
// The JSON names are stable within a schema. JSON leaves out empty fields with omitempty.
// docs/access-log-fields.md is made from the comments of the fields.
//
// [Decision.Record] does not know about the gateway and the sending. Its caller sets DialMillis,
// Address, UserAgentSent, Signed, SignatureForm, Unsigned, Gateway, Version, Config, DecidedAt,
// SentAt, EndedAt, Removed, PaymentRequired, BudgetLeft, Lost and LostSince.
type LogRecord struct {
	// Schema is the version of this object: 2. Schema 1, which no release wrote, is not read.
	Schema int `json:"schema"`
	// Decision is `allow`, `deny`, or `error` if a failure, not a judgement, kept the request from
	// being answered. In the line of a CONNECT, `allow` means that the tunnel was opened.
	Decision string `json:"decision"`
	// Reason is why, from the closed set in docs/problems/README.md.
	Reason Reason `json:"reason"`
	// Detail is more for a human, such as `status 503` or `no such host` if the robots.txt is
	// unreachable. Do not parse it.
	Detail string `json:"detail,omitempty"`
	// Mode is the mode in which the request was judged: `enforce`, `report` or `off`.
	Mode string `json:"mode"`
	// WouldDeny is true if `mode report` let a request pass that `mode enforce` would have refused,
	// for `reason`.
	WouldDeny bool `json:"would_deny"`
	// Agent is the crawler: the name of its `agent` block or, without blocks, the product token of its
	// User-Agent. It is empty if the crawler is unknown.
	Agent string `json:"agent"`
	// Tokens are the product tokens whose group was looked for, the most specific first. None means
	// the group `*`.
	Tokens []string `json:"tokens,omitempty"`
	// Owner is the `owner` of the agent's block.
	Owner string `json:"owner,omitempty"`
	// Contact is the `contact` of the agent's block.
	Contact string `json:"contact,omitempty"`
	// IdentifiedBy is how the agent was identified: `credential`, `client_certificate`, `source` and
	// `user_agent`, joined by `+`.
	IdentifiedBy string `json:"identified_by,omitempty"`
	// UserAgent is the User-Agent as received, cut at 512 bytes and escaped.
	UserAgent string `json:"user_agent,omitempty"`
	// Origin is the scheme, host and port of the request: the scope of one robots.txt.
	Origin string `json:"origin"`
	// RobotsURL is the URL of that robots.txt.
	RobotsURL string `json:"robots_url"`
	// State is the state of that robots.txt: `rules`, `absent`, `unreachable`, or `unknown` if the
	// decision did not need it.
	State string `json:"state"`
	// Cause is why the state is not `rules`: see docs/status-table.md.
	Cause string `json:"cause,omitempty"`
	// FetchedAs is the product token in whose name the robots.txt was fetched, if the site rejected
	// the gateway's own User-Agent.
	FetchedAs string `json:"fetched_as,omitempty"`
	// Group is the group that binds the crawler, as named in the file.
	Group string `json:"group,omitempty"`
	// Rule is the path of the rule that decided, as written in the file, cut at 512 bytes. If
	// Visit-time decided, it is the hours.
	Rule string `json:"rule,omitempty"`
	// Line is the line of that rule, from 1.
	Line int `json:"line,omitempty"`
	// Form is the form of the path that decided, if servers resolve the path to another one: `as_sent`
	// (disallowed as sent, or `paths as_sent`), `resolved` (only the resolved form is disallowed) or
	// `both` (both are allowed).
	Form PathForm `json:"form,omitempty"`
	// SHA256 is the hash of the text that decided. The store keeps that text for audits.
	SHA256 string `json:"sha256,omitempty"`
	// AgeSeconds is how long ago that text was fetched, in seconds.
	AgeSeconds int64 `json:"age_s,omitempty"`
	// Source is where the rules came from: `hot` (memory), `store`, `fetch` (this request caused the
	// fetch), `wait` (the request waited for a fetch that another one caused), or `none`.
	Source string `json:"source"`
	// PathVisible is true if the rules were matched against the path. In the line of a CONNECT,
	// true means that the requests in the tunnel have lines of their own, and false that the tunnel
	// is blind.
	PathVisible bool `json:"path_visible"`
	// PathSum is a checksum of the path, if the path was matched: the first four hexadecimal digits of
	// its SHA-256 and, after a dash, of the query's. It shows whether a filter has changed the URL in
	// the line.
	PathSum string `json:"path_sum,omitempty"`
	// WaitMillis is how long the request was held for politeness, in milliseconds.
	WaitMillis int64 `json:"wait_ms,omitempty"`
	// CrawlDelay is the Crawl-delay of the group as written, in seconds.
	CrawlDelay float64 `json:"crawl_delay_s,omitempty"`
	// DialMillis is how long resolving and connecting took, in milliseconds, if the request needed a
	// new connection.
	DialMillis int64 `json:"dial_ms,omitempty"`
	// Address is the address and port that was reached.
	Address string `json:"address,omitempty"`
	// Exception is the exception that let the request pass. One that was given at run time is named
	// by its order: `order ID, by dora, ticket OPS-4711, until 2026-12-31T23:59:59Z:
	// AcmeBot@shop.example /feed/`.
	Exception string `json:"exception,omitempty"`
	// UserAgentSent is the User-Agent that the site got, if the agent's block sets it
	// (`send_user_agent`).
	UserAgentSent string `json:"user_agent_sent,omitempty"`
	// Signed is the thumbprint of the key that signed the request: see docs/identity.md.
	Signed string `json:"signed,omitempty"`
	// SignatureForm is the form of the request's Signature-Agent: `dictionary` or `string`.
	SignatureForm string `json:"signature_form,omitempty"`
	// Unsigned is why a request left without a signature although its agent signs: `scheme` (not
	// https), `no_key` (no key signs at this time), `tunnel` (a CONNECT that is not intercepted) or
	// `egress_off` (another handler sent it).
	Unsigned string `json:"unsigned,omitempty"`
	// ExceptionOrder is the id of the order, if the exception was given at run time.
	// `GET /robots/deny` lists it.
	ExceptionOrder string `json:"exception_order,omitempty"`
	// ExceptionBy is who gave that order.
	ExceptionBy string `json:"exception_by,omitempty"`
	// ExceptionTicket is the ticket of that order.
	ExceptionTicket string `json:"exception_ticket,omitempty"`
	// ExceptionUntil is when that order ends, or when `allow_for` ends it at this gateway, in seconds
	// since 1970. It is later than `decided_at`.
	ExceptionUntil Seconds `json:"exception_until,omitempty"`
	// Gateway is the name of the gateway: the engine's `gateway`, by default the name of the host.
	Gateway string `json:"gateway,omitempty"`
	// Version is the version of Crawlgate that wrote the line, or `devel` if its build has none.
	Version string `json:"version,omitempty"`
	// Config is the configuration in use: the first 16 hexadecimal digits of a SHA-256 over the
	// global option `robots` and the `robots` of each site. Lines with the same value were decided
	// under the same policy. The gateway's name, site addresses, other modules and the lines of a
	// `hosts_file` do not change it.
	Config string `json:"config,omitempty"`
	// DecidedAt is when the request was decided, in seconds since 1970. A robots.txt that changes
	// later, while the request waits or is under way, does not matter for it.
	DecidedAt Seconds `json:"decided_at,omitempty"`
	// SentAt is when the gateway began to send the request or had connected the tunnel, in seconds
	// since 1970. With `egress off` it is when the next handler got the request. It is missing if
	// nothing was sent.
	SentAt Seconds `json:"sent_at,omitempty"`
	// EndedAt is when the request was over, just before the line was written, in seconds since 1970.
	EndedAt Seconds `json:"ended_at,omitempty"`
	// Removed is how many lines of the request's header were removed because the agent's block does
	// not `pass` them: see docs/signals.md.
	Removed int `json:"removed,omitempty"`
	// PaymentRequired is true if the site answered 402 (Payment Required). `decision` is `allow`
	// nevertheless.
	PaymentRequired bool `json:"payment_required,omitempty"`
	// BudgetLeft is how many requests the agent had left that day after this one, as far as the
	// gateway knew, if its budget limits requests: see docs/limits.md.
	BudgetLeft *int64 `json:"budget_left,omitempty"`
	// Signals are the directives of the answer that are for this agent, such as `noindex` or
	// `max-snippet=50`: see docs/signals.md.
	Signals []string `json:"signals,omitempty"`
	// Preferences are what the site says about the use of its content, by purpose, each as a member of
	// an RFC 9651 dictionary: `train-ai=n;from=robots;line=4`.
	Preferences []string `json:"preferences,omitempty"`
	// SignalsRead is which sources of these two were read, joined by `+`: `robots_txt`, `headers`,
	// `html`, and `tdm_file` if the site's file was read for the request.
	SignalsRead string `json:"signals_read,omitempty"`
	// Vocabulary is the set of labels by which they were read: `aipref-08`. `robots audit` computes
	// them again if it has the same one.
	Vocabulary string `json:"vocabulary,omitempty"`
	// SignalFields are their sources: the rule of the TDM file that applies
	// (`tdm file: {"location":"/a","tdm-reservation":1}`), fields of the answer (`Name: value`), and
	// tags of its page (`meta robots: noindex`, `link license: https://…`), 1 KiB in all.
	SignalFields []string `json:"signal_fields,omitempty"`
	// SignalsCut is true if there were more sources or longer ones, or if the page may have more.
	SignalsCut bool `json:"signals_cut,omitempty"`
	// Purposes are the uses of content for which the agent is configured.
	Purposes []string `json:"purposes,omitempty"`
	// AlsoObey are the tokens whose groups bind the agent beside its own, as configured.
	AlsoObey []string `json:"also_obey,omitempty"`
	// Conflict is the preference that conflicts with one of the purposes. It is `=unknown` if the site
	// says nothing and `unknown deny` requires a statement.
	Conflict string `json:"preference_conflict,omitempty"`
	// Lost is how many lines before this one are missing because the log was stalled: see
	// docs/access-log.md#a-log-that-takes-no-lines.
	Lost int64 `json:"lost,omitempty"`
	// LostSince is when the first of them would have been written, in seconds since 1970.
	LostSince Seconds `json:"lost_since,omitempty"`
}

// Seconds is a time of the log in seconds since 1970, which a float64 holds to a quarter of a
// microsecond. Zero is no time.
type Seconds float64

// SecondsOf converts a time to the form of the log.
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

// Fields yields the fields of r by their JSON names, in order, except those that JSON leaves out.
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

// Field returns the value of the field with a JSON name, even if it is empty. It reports false if
// no field has the name.
func (r *LogRecord) Field(name string) (reflect.Value, bool) {
	at := slices.IndexFunc(recordFields, func(f recordField) bool { return f.name == name })
	if at < 0 {
		return reflect.Value{}, false
	}
	return reflect.ValueOf(r).Elem().Field(at), true
}

// PathSum is the first four hexadecimal digits of the SHA-256 of a path and, behind a dash, of its
// query, if it has one. It shows whether the path in a log is unchanged. It also lets a reader test
// a guess of what a filter removed from the log; a wrong guess passes once in 65,536 times.
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
			list = slices.Clone(list) // others read the list
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
		if r.SignalsRead = d.reads.String(); r.SignalsRead != "" {
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
