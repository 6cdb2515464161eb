package audit

import (
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/evidence/verify"
)

// Kind classifies findings. The set is closed and its spellings are stable;
// docs/audit.md has a row for each. It includes the kinds of package verify.
type Kind = verify.Kind

const (
	// KindSchema is a robots object of a schema that this release does not know.
	KindSchema Kind = "schema"
	// KindImpossible is a line whose fields contradict each other.
	KindImpossible Kind = "impossible"
	// KindTarget is a line whose URL is not of the origin that it names.
	KindTarget Kind = "target"
	// KindText is a line whose text in the store was altered: its hash is not the one under which it
	// is kept.
	KindText Kind = "text"
	// KindVerdict is a line whose decision contradicts the rules.
	KindVerdict Kind = "verdict"
	// KindEvidence is a line whose decision is right, but whose rule, line, group or Crawl-delay
	// differs from the rules.
	KindEvidence Kind = "evidence"
	// KindPreference is a line whose preferences or signals differ from its text and its fields.
	KindPreference Kind = "preference"
	// KindHistory is a line whose text or state is not what its origin answered at that time.
	KindHistory Kind = "history"
	// KindGap is a request that was sent too soon after another one to the same host.
	KindGap Kind = "gap"
)

// Kinds lists all kinds, in the order of their documentation.
func Kinds() []Kind {
	return append([]Kind{
		KindSchema, KindImpossible, KindTarget, KindText, KindVerdict, KindEvidence, KindPreference, KindHistory, KindGap,
	}, verify.Kinds()...)
}

// Unprovable says why a line can be neither confirmed nor contradicted. The set is closed and its
// spellings are stable; docs/audit.md has a row for each.
type Unprovable string

const (
	// CauseTextMissing is a text that the store does not have, or no longer has.
	CauseTextMissing Unprovable = "text_missing"
	// CauseTextUnread is a text that could not be read; a [Fault] says why.
	CauseTextUnread Unprovable = "text_unread"
	// CauseHistory is an answer from before the log's first line about its robots.txt, or a decision
	// without a time.
	CauseHistory Unprovable = "history"
	// CauseQuery is a URL whose query the log does not show, where a rule could look at it.
	CauseQuery Unprovable = "query"
	// CauseURL is a URL with bytes that a JSON log cannot hold.
	CauseURL Unprovable = "url"
)

// Causes lists all causes, in the order of their documentation.
func Causes() []Unprovable {
	return []Unprovable{CauseTextMissing, CauseTextUnread, CauseHistory, CauseQuery, CauseURL}
}

// Place is a line of a log, counted from 1.
type Place = verify.Place

// Finding is a line that does not follow from the stored texts. Its strings are copied from the
// log: escape them before you show them.
type Finding struct {
	Place
	// Kind is the kind of the finding (docs/audit.md#findings).
	Kind Kind `json:"kind"`
	// Message describes the contradiction. It is for humans and may change.
	Message string `json:"message"`
	// Agent is the crawler.
	Agent string `json:"agent"`
	// URL is the request's. It is empty if the line has none, or if a later line shows the finding.
	URL string `json:"url,omitempty"`
	// SHA256 is the hash of the text that the line rests on.
	SHA256 string `json:"sha256,omitempty"`
	// Recorded is what the line says.
	Recorded *Verdict `json:"recorded,omitempty"`
	// Computed is what the text says.
	Computed *Verdict `json:"computed,omitempty"`
	// Gap is the gap that was too short, of the kind "gap" only.
	Gap *Gap `json:"gap,omitempty"`
}

// Verdict is the reason and the rule that decided, as the access log names them.
type Verdict struct {
	// Reason is the reason of the decision.
	Reason string `json:"reason"`
	// Group is the User-agent of the group that decided.
	Group string `json:"group"`
	// Rule is the pattern of the rule that decided.
	Rule string `json:"rule"`
	// Line is the line of the rule in robots.txt.
	Line int `json:"line"`
	// CrawlDelay is the Crawl-delay in seconds.
	CrawlDelay float64 `json:"crawl_delay_s"`
	// Form is the form of the path that decided.
	Form enforce.PathForm `json:"form,omitempty"`
}

// Gap is the time between two requests to a host.
type Gap struct {
	// After is the line of the earlier request.
	After Place `json:"after"`
	// Host is the host of both requests.
	Host string `json:"host"`
	// Most is how long the gap was at most, in seconds.
	Most float64 `json:"most_s"`
	// Delay is how long it had to be, in seconds.
	Delay float64 `json:"delay_s"`
}

// Fault says why a line, a file or a text could not be read. The audit goes on.
type Fault struct {
	Place
	Err error
	// Torn means that a crash, full disk or truncation cut the line, which is no error of the log.
	Torn bool
}
