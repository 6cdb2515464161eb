package adminapi

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/cluster"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/evidence/sealer"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/linediff"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/webbotauth"
)

// Prefix starts the paths of the admin API.
const Prefix = "/robots/"

// The number of entries on a page of a list.
const (
	DefaultPage = 100
	MaxPage     = 1000
)

// OriginInfo is the current record of an origin. Times are in UTC.
type OriginInfo struct {
	fetch.Record
	RobotsURL string `json:"robots_url"`
	// Flags say why the text may not be a robots.txt: [engine.FlagHTML], which a list does not have,
	// and [engine.Flag202]. Its valid lines still apply.
	Flags []string `json:"flags,omitempty"`
	// Sitemaps are from the text that decides or, without one, from the last text that did. A list
	// does not have them.
	Sitemaps []Sitemap `json:"sitemaps,omitempty"`
}

// ViewInfo is the current meaning of a record for crawlers.
type ViewInfo struct {
	// Access is "rules", "last_good", "allow" or "deny".
	Access     string    `json:"access"`
	State      string    `json:"state"`
	Cause      string    `json:"cause,omitempty"`
	SHA256     string    `json:"sha256,omitempty"`
	FetchedAt  time.Time `json:"fetched_at,omitzero"`
	FreshUntil time.Time `json:"fresh_until,omitzero"`
	RetryAt    time.Time `json:"retry_at,omitzero"`
}

// OriginList is a page of origins.
type OriginList struct {
	Origins []OriginInfo `json:"origins"`
	// Next is the parameter after for the next page. It is empty on the last page.
	Next string `json:"next,omitempty"`
}

// OriginDetail is everything known about one origin.
type OriginDetail struct {
	Record OriginInfo `json:"record"`
	View   ViewInfo   `json:"view"`
	// TDMFile is the state of the TDM file: "read", "none", or "unread" with the reason.
	TDMFile string `json:"tdm_file,omitempty"`
	// Preferences are what the lines of its robots.txt say to the requested agent, at most 1,000, in
	// the order of the file.
	Preferences []Preference `json:"preferences,omitempty"`
	// Variants are the agents in whose name robots.txt was fetched because the site refused the
	// gateway, and which got a different answer. The parameter as selects the record of one.
	Variants []string              `json:"variants,omitempty"`
	History  []robotscache.Version `json:"history"`
}

// TextDiff is the difference between two texts.
type TextDiff struct {
	Origin string              `json:"origin"`
	From   robotscache.Version `json:"from"`
	To     robotscache.Version `json:"to"`
	// Hunks have three unchanged lines on either side. Unprintable bytes are escaped.
	Hunks []linediff.Hunk `json:"hunks"`
}

// OriginRequest is the body of purge and refresh.
type OriginRequest struct {
	Origin string `json:"origin"`
}

// Purged is the answer to a purge. In its report, the numbers of the gateways are records.
type Purged struct {
	Origin string `json:"origin"`
	// Known says that there was a record to forget.
	Known bool `json:"known"`
	cluster.Acknowledgements
}

// Undone reports whether there was no record to forget.
func (p Purged) Undone() bool { return !p.Known }

// Refreshed is the answer to a refresh.
type Refreshed struct {
	OriginDetail
	// Forgotten says that the origin was unknown and cannot be reached, so no record of it is kept.
	// Other gateways are not told.
	Forgotten bool `json:"forgotten,omitempty"`
	cluster.Acknowledgements
}

// Undone reports whether the fetch failed.
func (r Refreshed) Undone() bool { return !r.Record.LastFailure.IsZero() }

// Explanation says how a request would be answered.
type Explanation struct {
	// Site is the listener whose policy decided.
	Site string `json:"site,omitempty"`
	// URL is the target in the form that would be sent.
	URL string `json:"url"`
	// Robots is the object that the access log would contain.
	Robots enforce.LogRecord `json:"robots"`
	// Refusal is the answer that the client would get. It is nil if the request would be sent.
	Refusal *enforce.Problem `json:"refusal,omitempty"`
	// Preferences are what the robots.txt says about the use of the URL, by purpose; see
	// [PreferencesOf].
	Preferences []Preference `json:"preferences,omitempty"`
	// BlockedUntil is the end of the pause that the host asked for, by 429, 430 or 503. Even an
	// allowed request has to wait for it.
	BlockedUntil time.Time `json:"blocked_until,omitzero"`
	// Budget is the rest of the agent's budget. It is nil if the agent has none.
	Budget *BudgetLeft `json:"budget,omitempty"`
}

// BudgetLeft is the rest of an agent's budget until the day ends: requests, bytes, and requests to
// the host. A field is nil if it has no limit.
type BudgetLeft struct {
	Until    time.Time `json:"until"`
	Requests *int64    `json:"requests,omitempty"`
	Bytes    *int64    `json:"bytes,omitempty"`
	PerHost  *int64    `json:"per_host,omitempty"`
}

// String lists the numbers that are left.
func (b *BudgetLeft) String() string {
	left := make([]string, 0, 3)
	for _, part := range []struct {
		n    *int64
		what string
	}{{b.Requests, "requests"}, {b.PerHost, "requests to the host"}, {b.Bytes, "bytes"}} {
		if part.n != nil {
			left = append(left, fmt.Sprintf("%d %s", *part.n, part.what))
		}
	}
	return "left until " + b.Until.UTC().Format(time.RFC3339) + ": " + strings.Join(left, ", ")
}

// Preference is what a robots.txt says about one purpose.
type Preference struct {
	Purpose string `json:"purpose"`
	Value   string `json:"value"` // "y", "n" or "unknown"; of "use" the level, of "license" the address
	// Source is the kind of the line, and Line its number. They are empty if no line is about the
	// purpose.
	Source string `json:"source,omitempty"`
	Line   int    `json:"line,omitempty"`
	// Path is the path that the line is limited to, if no URL was requested. It is empty for all
	// paths.
	Path string `json:"path,omitempty"`
}

// Agents lists the names of the configured agents, in alphabetical order.
type Agents struct {
	Agents []string `json:"agents"`
	// Keys has the keys of the agents that sign, by their names.
	Keys map[string][]AgentKey `json:"keys,omitempty"`
}

// AgentKey is a key of an agent, without its secret.
type AgentKey struct {
	ID    string    `json:"id"`
	From  time.Time `json:"from,omitzero"`
	Until time.Time `json:"until,omitzero"`
	State string    `json:"state"` // as [webbotauth.Keys.State] has it
}

// KeysAt describes keys at a given time.
func KeysAt(keys webbotauth.Keys, now time.Time) []AgentKey {
	list := make([]AgentKey, len(keys))
	for i, key := range keys {
		list[i] = AgentKey{key.ID, key.NotBefore, key.Expires, keys.State(key, now)}
	}
	return list
}

// Orders lists the stops and the exceptions that were given at run time, oldest first.
type Orders struct {
	Orders []enforce.Stop `json:"orders"`
}

// OrderRequest is the body of an order.
type OrderRequest struct {
	Scope  enforce.StopScope `json:"scope"`
	Value  string            `json:"value"`
	By     string            `json:"by"`
	Reason string            `json:"reason"`
	// Force accepts the order even if no agent has the name.
	Force bool `json:"force"`
}

// AllowRequest is the body of an exception at run time.
type AllowRequest struct {
	Host  string   `json:"host"` // a pattern
	Agent string   `json:"agent"`
	Paths []string `json:"paths"` // prefixes; empty for every path
	// Until is when it ends, as in [enforce.Exception].
	Until  string `json:"until"`
	By     string `json:"by"`
	Ticket string `json:"ticket"`
	Reason string `json:"reason"`
}

// LiftRequest names the order to lift, and the person who lifts it.
type LiftRequest struct {
	Scope enforce.StopScope `json:"scope"`
	Value string            `json:"value"`
	By    string            `json:"by"`
}

// OrderGiven is the answer to an order.
type OrderGiven struct {
	Order enforce.Stop `json:"order"`
	// Ended is how many requests, tunnels and fetches in progress the order ended.
	Ended int `json:"ended"`
	cluster.Acknowledgements
}

// OrderLifted is the answer to the end of an order.
type OrderLifted struct {
	Order enforce.Stop `json:"order"`
	By    string       `json:"by"` // who lifted it
	cluster.Acknowledgements
}

// String says who lifted the order, and who gave it.
func (l OrderLifted) String() string {
	what := "stop of "
	if l.Order.Scope == enforce.StopAllow {
		what = ""
	}
	return "lifted by " + cmp.Or(l.By, "(not named)") + ": " + what + l.Order.String()
}

// OriginsRequest asks for a page of origins: all, the origins of a host, or the origins in a state.
type OriginsRequest struct {
	After string  `json:"after"`
	Host  *string `json:"host"`
	Limit int     `json:"limit"` // 0 for DefaultPage
	State string  `json:"state"`
}

// OriginQuery asks for an origin, as seen by an agent of a site.
type OriginQuery struct {
	Agent  *string `json:"agent"`
	As     *string `json:"as"` // the variant of the record; nil for the agent's
	Origin string  `json:"origin"`
	Site   string  `json:"site"`
}

// DiffRequest names two versions of an origin's text by their hashes, by default the last two.
type DiffRequest struct {
	As     string `json:"as"`
	Origin string `json:"origin"`
	From   string `json:"from"`
	To     string `json:"to"`
}

// ExplainRequest asks for the explanation of an agent's request.
type ExplainRequest struct {
	Agent string `json:"agent"`
	URL   string `json:"url"`
	Site  string `json:"site"`
}

// ClocksRequest asks for a page of clocks: all, those in a state, those with a text in their keys,
// or one.
type ClocksRequest struct {
	After    string  `json:"after"`
	Contains string  `json:"contains"`
	Limit    int     `json:"limit"` // 0 for DefaultPage
	State    string  `json:"state"`
	Key      *string `json:"key"`
}

// Gateways lists a fleet.
type Gateways struct {
	// Fleet says that there is a fleet. Otherwise only this gateway is listed.
	Fleet bool `json:"fleet"`
	// Up says that Redis answers.
	Up bool `json:"up"`
	// Expected is how many gateways there should be at least, 0 if the configuration does not say.
	Expected int `json:"expected,omitempty"`
	// Version is the version of the stops here, Pending the number of them that are not in Redis yet.
	Version  int64             `json:"orders_version,omitempty"`
	Pending  int               `json:"orders_pending"`
	Gateways []cluster.Gateway `json:"gateways"`
	// Unlisted is how many gateways are alive besides, of more than 1,000.
	Unlisted int `json:"unlisted,omitempty"`
}

// Clocks is how the clocks of the hosts stand.
type Clocks struct {
	// Keys counts the clocks that are kept, Waiting the requests that are held for their turn, and
	// Blocked the clocks whose site asked to be left alone.
	Keys    int `json:"keys"`
	Waiting int `json:"waiting"`
	Blocked int `json:"blocked"`
	// Clocks are a page of them, in the order of their keys.
	Clocks []Clock `json:"clocks"`
	// Next is the parameter after for the next page. It is empty on the last page.
	Next string `json:"next,omitempty"`
}

// Clock is the clock of a host, or of a "site:", an "addr:" or an "agent:" where the operator paces
// by these.
type Clock struct {
	Key string `json:"key"`
	// NextRequest is when the next request may go, WaitSeconds how long that is: 0 where one may go
	// now.
	NextRequest time.Time `json:"next_request"`
	WaitSeconds float64   `json:"wait_s"`
	// DelaySeconds is the gap that the last request asked for: the Crawl-delay.
	DelaySeconds float64 `json:"delay_s,omitempty"`
	InFlight     int     `json:"in_flight"`
	Queue        int     `json:"queue"`
	// BlockedUntil is the end of the block, LeftSeconds how long that is: 0 for one that is over and
	// not forgiven.
	BlockedUntil time.Time `json:"blocked_until,omitzero"`
	LeftSeconds  int64     `json:"left_s,omitempty"`
	// Strikes is how often in a row the site blocked without saying for how long.
	Strikes int `json:"strikes,omitempty"`
}

// UnblockRequest is the body of unblock.
type UnblockRequest struct {
	// Key is a host, or the key of a clock as they are listed.
	Key string `json:"key"`
}

// Unblocked is the answer to it: the blocks that were ended.
type Unblocked struct {
	Ended []EndedBlock `json:"ended"`
	cluster.Acknowledgements
}

// EndedBlock is a block that was ended. If only other gateways knew it, it has just the key.
type EndedBlock struct {
	Key          string    `json:"key"`
	BlockedUntil time.Time `json:"blocked_until,omitzero"`
	Strikes      int       `json:"strikes,omitempty"`
}

// Evidence lists the access logs that are sealed.
type Evidence struct {
	Logs []sealer.Status `json:"logs"`
}
