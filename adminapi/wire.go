package adminapi

import (
	"cmp"
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
	// RobotsURL is where the rules are.
	RobotsURL string `json:"robots_url"`
	// Flags are why the text may not be a robots.txt: "html", which a list does not have, or
	// "status_202". Its valid lines still apply.
	Flags []string `json:"flags,omitempty"`
	// Sitemaps are from the text that decides or, without one, from the last text that did. A record
	// has at most 1,000 of them, each of up to 2 KiB. A list does not have them.
	Sitemaps []Sitemap `json:"sitemaps,omitempty"`
}

// ViewInfo is the current meaning of a record for crawlers.
type ViewInfo struct {
	// Access is "rules" (the text decides), "last_good" (the last good copy decides), "allow" or
	// "deny" (everything).
	Access string `json:"access"`
	// State is the state of the record.
	State string `json:"state"`
	// Cause is the cause of the state.
	Cause string `json:"cause,omitempty"`
	// SHA256 is the hash of the text that decides.
	SHA256 string `json:"sha256,omitempty"`
	// FetchedAt is when the answer that decides was fetched.
	FetchedAt time.Time `json:"fetched_at,omitzero"`
	// FreshUntil is when it has to be fetched again.
	FreshUntil time.Time `json:"fresh_until,omitzero"`
	// RetryAt is when the next attempt is due.
	RetryAt time.Time `json:"retry_at,omitzero"`
}

// OriginList is a page of origins.
type OriginList struct {
	// Origins are the records of the page, in the order of their names.
	Origins []OriginInfo `json:"origins"`
	// Next is the parameter "after" for the next page. It is empty on the last page.
	Next string `json:"next,omitempty"`
}

// OriginDetail is everything known about one origin.
type OriginDetail struct {
	// Record is what the gateway keeps of the origin.
	Record OriginInfo `json:"record"`
	// View is the effect of the record now.
	View ViewInfo `json:"view"`
	// TDMFile is the state of the TDM file: "read", "none", or "unread: " and the reason
	// (docs/signals.md#the-tdm-file).
	TDMFile string `json:"tdm_file,omitempty"`
	// Preferences are what the lines of its robots.txt say to the requested agent, at most 1,000, in
	// the order of the file.
	Preferences []Preference `json:"preferences,omitempty"`
	// Variants are the agents in whose name robots.txt was fetched because the site refused the
	// gateway, and which got a different answer. The parameter "as" selects the record of one.
	Variants []string `json:"variants,omitempty"`
	// History are the versions of the robots.txt, newest first.
	History []robotscache.Version `json:"history"`
}

// TextDiff is the difference between two texts.
type TextDiff struct {
	// Origin is the origin whose texts were compared.
	Origin string `json:"origin"`
	// From is the version of the old text.
	From robotscache.Version `json:"from"`
	// To is the version of the new text.
	To robotscache.Version `json:"to"`
	// Hunks are the stretches that changed, with three unchanged lines on either side. Unprintable
	// bytes are escaped. Equal texts have no hunks.
	Hunks []linediff.Hunk `json:"hunks"`
}

// OriginRequest is the body of purge and refresh.
type OriginRequest struct {
	Origin string `json:"origin"`
}

// Purged is the answer to a purge. In its report, the numbers of the gateways are records.
type Purged struct {
	// Origin is the site that was forgotten.
	Origin string `json:"origin"`
	// Known says that a gateway had a record to forget.
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
	// Robots is the decision, as the access log would contain it (docs/access-log-fields.md).
	Robots enforce.LogRecord `json:"robots"`
	// Refusal is the problem details (docs/problems/README.md) that the client would get. It is
	// empty if the request would be sent.
	Refusal *enforce.Problem `json:"refusal,omitempty"`
	// Preferences are what the robots.txt says about the use of the URL, by purpose.
	Preferences []Preference `json:"preferences,omitempty"`
	// BlockedUntil is the end of the pause that the host asked for, by 429, 430 or 503. Even an
	// allowed request has to wait for it.
	BlockedUntil time.Time `json:"blocked_until,omitzero"`
	// Budget is the rest of the agent's budget (docs/limits.md#budgets) in the fleet. It is empty
	// if the agent has none.
	Budget *BudgetLeft `json:"budget,omitempty"`
}

// Preference is what a robots.txt says about one purpose.
type Preference struct {
	// Purpose is what the text is used for, such as "train-ai".
	Purpose string `json:"purpose"`
	// Value is "y", "n" or "unknown". Of "use" it is the level, of "license" the address.
	Value string `json:"value"`
	// Source is the kind of the line. It is empty if no line is about the purpose.
	Source string `json:"source,omitempty"`
	// Line is the number of the line.
	Line int `json:"line,omitempty"`
	// Path is the path that the line is limited to, if no URL was requested. It is empty for all
	// paths.
	Path string `json:"path,omitempty"`
}

// Agents lists the names of the configured agents, in alphabetical order.
type Agents struct {
	// Agents are the names of the agent blocks of all sites.
	Agents []string `json:"agents"`
	// Keys are the keys of the agents that sign, by their names (docs/identity.md).
	Keys map[string][]AgentKey `json:"keys,omitempty"`
}

// AgentKey is a key of an agent, without its secret.
type AgentKey struct {
	// ID is the thumbprint of the key.
	ID string `json:"id"`
	// From is since when it signs.
	From time.Time `json:"from,omitzero"`
	// Until is when it ceases to sign. It is empty if it does not.
	Until time.Time `json:"until,omitzero"`
	// State is "signs", "published" or "ended".
	State string `json:"state"`
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
	// Orders are the stops and the exceptions.
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
	// Order is the stop or the exception.
	Order enforce.Stop `json:"order"`
	// Ended is how many requests, tunnels and fetches in progress the order ended here.
	Ended int `json:"ended"`
	cluster.Acknowledgements
}

// OrderLifted is the answer to the end of an order.
type OrderLifted struct {
	// Order is the stop or the exception that was lifted.
	Order enforce.Stop `json:"order"`
	// By is who lifted it.
	By string `json:"by"`
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
	// Version is the version of the stops that is applied here.
	Version int64 `json:"orders_version,omitempty"`
	// Pending is the number of stops here that are not in Redis yet.
	Pending int `json:"orders_pending"`
	// Gateways are the gateways that are alive, up to 1,000.
	Gateways []cluster.Gateway `json:"gateways"`
	// Unlisted is how many gateways are alive besides.
	Unlisted int `json:"unlisted,omitempty"`
}

// Clocks is how the clocks of the hosts stand.
type Clocks struct {
	// Keys is how many clocks are kept.
	Keys int `json:"keys"`
	// Waiting is how many requests wait for their turn.
	Waiting int `json:"waiting"`
	// Blocked is how many clocks belong to sites that asked for a pause.
	Blocked int `json:"blocked"`
	// Clocks are a page of them, in the order of their keys.
	Clocks []Clock `json:"clocks"`
	// Next is the parameter "after" for the next page. It is empty on the last page.
	Next string `json:"next,omitempty"`
}

// Clock is the clock of a host, or of what else the operator paces by.
type Clock struct {
	// Key is a host, "site:" and a domain, "addr:" and an address, or "agent:", a name, "@" and a
	// host.
	Key string `json:"key"`
	// NextRequest is when the next request may go. Other gateways may have booked later slots.
	NextRequest time.Time `json:"next_request"`
	// WaitSeconds is how many seconds that is from now, 0 if one may go now.
	WaitSeconds float64 `json:"wait_s"`
	// DelaySeconds is the gap that the last request asked for: the Crawl-delay.
	DelaySeconds float64 `json:"delay_s,omitempty"`
	// InFlight is how many requests are under way, if "concurrency" counts them.
	InFlight int `json:"in_flight"`
	// Queue is how many requests wait.
	Queue int `json:"queue"`
	// BlockedUntil is the end of the block.
	BlockedUntil time.Time `json:"blocked_until,omitzero"`
	// LeftSeconds is how many seconds the block still lasts, 0 if it is over and not forgiven.
	LeftSeconds int64 `json:"left_s,omitempty"`
	// Strikes is how often in a row the site blocked without saying for how long.
	Strikes int `json:"strikes,omitempty"`
}

// UnblockRequest is the body of unblock.
type UnblockRequest struct {
	// Key is a host, or the key of a clock as they are listed.
	Key string `json:"key"`
}

// Unblocked is the answer to unblock.
type Unblocked struct {
	// Ended are the blocks that were ended.
	Ended []EndedBlock `json:"ended"`
	cluster.Acknowledgements
}

// EndedBlock is a block that was ended. If only other gateways knew it, it has just the key.
type EndedBlock struct {
	// Key is the key of the clock.
	Key string `json:"key"`
	// BlockedUntil is when the block would have ended.
	BlockedUntil time.Time `json:"blocked_until,omitzero"`
	// Strikes is how often in a row the site had blocked without saying for how long.
	Strikes int `json:"strikes,omitempty"`
}

// Evidence lists the access logs that are sealed.
type Evidence struct {
	// Logs are the sealed logs (docs/evidence.md).
	Logs []sealer.Status `json:"logs"`
}
