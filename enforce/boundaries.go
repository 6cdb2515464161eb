package enforce

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/internal/follow"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// Boundaries are what an agent is limited to, as configured. A request outside of them is refused
// in every mode, before anything is fetched. The zero value is no boundary.
type Boundaries struct {
	// Hosts are patterns of the hosts that the agent may reach, besides those of
	// [Boundaries.HostsFile]. A crawler for a list of sites does not leave the list because of a link
	// or a redirect. Default: all hosts.
	Hosts []string `json:"hosts,omitempty"`
	// HostsFile is a file with more such patterns, one per line; `#` begins a comment. Its changes are
	// followed. If it cannot be read later, the former hosts stay. Default: none.
	HostsFile string `json:"hosts_file,omitempty"`
	// Ports are the ranges of ports, first and last, that the agent may reach.
	Ports [][2]uint16 `json:"-"`
	// Methods are the methods that the agent may send, in capitals. HEAD is not part of GET. A tunnel
	// that is not intercepted hides its methods, so it is refused. Default: all methods.
	Methods []string `json:"methods,omitempty"`
	// Windows are the hours of the day at which the agent may send, such as `22:00-06:00
	// Europe/Berlin`. Without a zone, UTC counts. Default: all hours.
	Windows []string `json:"windows,omitempty"`
	// Expires is the day, such as `2027-03-31`, from whose beginning in UTC all requests of the agent
	// are refused. Default: never.
	Expires string `json:"expires,omitempty"`
	// Ticket is a line for that refusal, of up to 200 bytes: it tells the author of the crawler what
	// to renew. Only with [Boundaries.Expires]. Default: empty.
	Ticket string `json:"ticket,omitempty"`
	// VisitTime says whether the agent keeps the Visit-time of a robots.txt: `keep` or `ignore`.
	// Default: `ignore`.
	VisitTime string `json:"visit_time,omitempty"`

	hosts   hostSet
	listed  *follow.Watched[hostSet] // of HostsFile, once it is read
	windows []window
	expires time.Time
	limited bool // by any of these except VisitTime
}

// compileBoundaries checks the boundaries and makes them ready for use.
func (a *Agent) compileBoundaries() (err error) {
	if a.hosts, err = readHosts(slices.Values(a.Hosts)); err != nil {
		return fmt.Errorf("hosts: %w", err)
	}
	for _, m := range a.Methods {
		other := func(r rune) bool { return (r < 'A' || r > 'Z') && r != '-' }
		if m == "" || m == http.MethodConnect || strings.ContainsFunc(m, other) {
			return fmt.Errorf("methods %q: want methods of requests in capitals, such as GET", escape.Cut(m, maxName))
		}
	}
	for _, text := range a.Windows {
		w, err := parseWindow(text)
		if err != nil {
			return err
		}
		a.windows = append(a.windows, w)
	}
	if a.Expires != "" {
		if a.expires, err = time.Parse(time.DateOnly, a.Expires); err != nil {
			return fmt.Errorf("expires %q: want a date such as 2027-03-31", escape.Cut(a.Expires, maxName))
		}
	}
	if !isLine(a.Ticket) || a.Ticket != "" && a.Expires == "" {
		return fmt.Errorf("ticket: want a line of up to %d bytes, together with expires", maxText)
	}
	a.limited = len(a.Hosts)+len(a.HostsFile)+len(a.Ports)+len(a.Methods)+len(a.Windows)+len(a.Expires) > 0
	return OneOf("visit_time", a.VisitTime, "keep", "ignore")
}

// refusal says why a request may not go: usually, because it is outside a boundary. The zero value
// means that it may. As an error, it is for a request that was allowed.
type refusal struct {
	reason Reason
	detail string
	wait   time.Duration // until a retry can succeed; 0 if waiting does not help
}

func (r *refusal) Error() string { return r.detail }

// beyond returns the boundary of the agent that a request violates. The method is CONNECT for a
// blind tunnel. It is empty if it does not matter yet: the gateway may then answer for [OwnHost],
// which anybody may reach.
func (a *Agent) beyond(o origin.Origin, method string, now time.Time) (r refusal) {
	if !a.expires.IsZero() && !now.Before(a.expires) {
		r = refusal{reason: ReasonAgentExpired, detail: "since " + a.Expires}
		if a.Ticket != "" {
			r.detail += ", ticket " + a.Ticket
		}
		return r
	}
	if o.Host != OwnHost || method != "" {
		if r = a.beyondTarget(o, method); r.reason != "" {
			return r
		}
	}
	if len(a.windows) > 0 {
		wait := func(w window) time.Duration { return w.turn(now, true).Sub(now) } // 0 while it is open
		next := slices.MinFunc(a.windows, func(v, w window) int { return cmp.Compare(wait(v), wait(w)) })
		if wait(next) > 0 {
			return refusal{ReasonWindow, "its hours are " + strings.Join(a.Windows, ", "), wait(next)}
		}
	}
	return r
}

// beyondTarget checks only the boundaries that do not depend on the time.
func (a *Agent) beyondTarget(o origin.Origin, method string) (r refusal) {
	within := func(p [2]uint16) bool { return p[0] <= o.Port && o.Port <= p[1] }
	switch {
	case !a.mayReach(o):
		return refusal{reason: ReasonAgentHost, detail: "it is not one of the agent's hosts"}
	case len(a.Ports) > 0 && !slices.ContainsFunc(a.Ports, within):
		return refusal{reason: ReasonAgentPort, detail: fmt.Sprintf("port %d is not one of the agent's", o.Port)}
	case len(a.Methods) == 0 || method == "" || slices.Contains(a.Methods, method):
		return r
	case method == http.MethodConnect:
		r.detail = "the methods in a blind tunnel cannot be seen; the agent's are "
	default:
		r.detail = escape.ASCII(method, maxName) + " is not one of the agent's methods "
	}
	return refusal{reason: ReasonAgentMethod, detail: r.detail + strings.Join(a.Methods, ", ")}
}

// mayReach reports whether the host is one of the agent's. A file that has not been read has no
// hosts.
func (a *Agent) mayReach(o origin.Origin) bool {
	if len(a.Hosts) == 0 && a.HostsFile == "" {
		return true
	}
	_, _, listed := a.hosts.closest(o)
	if !listed && a.listed != nil {
		_, _, listed = a.listed.Value().closest(o)
	}
	return listed
}

// End returns when the agent expires, zero if it does not.
func (a *Agent) End() time.Time { return a.expires }

// Closes returns when the hour or the day ends the permission of an agent whose request is within
// its boundaries now. It returns zero if that never happens.
func (a *Agent) Closes(now time.Time) (closes time.Time) {
	if a == nil {
		return closes
	}
	closes = a.expires
	if len(a.windows) > 0 {
		if end := closing(a.windows, now); !end.IsZero() && (closes.IsZero() || end.Before(closes)) {
			closes = end
		}
	}
	return closes
}

// refuseBeyond refuses a request that is outside the agent's boundaries, and reports whether it
// did.
func (d *Decision) refuseBeyond(r refusal) bool {
	if r.reason == "" {
		return false
	}
	d.deny(r.reason, r.detail)
	d.RetryAfter = r.wait
	return true
}

// hostSet is a set of hosts, by patterns.
type hostSet = hostIndex[struct{}]

// Bounds of a file of hosts.
const (
	maxHostsFile = 64 << 20 // bytes
	maxHosts     = 1_000_000
)

// parseHosts reads a file of patterns, one per line. A # begins a comment.
func parseHosts(data []byte) (hostSet, error) {
	lines := 0
	set, err := readHosts(func(yield func(string) bool) {
		for line := range bytes.Lines(data) {
			lines++
			line, _, _ = bytes.Cut(line, []byte{'#'})
			if line = bytes.TrimSpace(line); len(line) > 0 && !yield(string(line)) {
				return
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("line %d: %w", lines, err)
	}
	return set, nil
}

// readHosts makes a set of patterns.
func readHosts(patterns func(yield func(string) bool)) (set hostSet, err error) {
	set = make(hostSet)
	for text := range patterns {
		p, err := ParseHostPattern(text)
		if err != nil {
			return nil, err
		}
		if set[p] = make([]struct{}, 1); len(set) > maxHosts {
			return nil, fmt.Errorf("there are more than %d hosts", maxHosts)
		}
	}
	return set, nil
}

// Follow reads the agents' files of hosts, and follows their changes until ctx ends. It returns an
// error if it cannot read a file. If that happens later, the previous hosts stay, and tell gets the
// error. tell gets nil when a change has been applied. Call Follow once, before the Identifier is
// used.
func (id *Identifier) Follow(ctx context.Context, tell func(agent string, err error)) error {
	for _, a := range id.agents {
		if a.HostsFile == "" {
			continue
		}
		var err error
		a.listed, err = follow.Open(ctx, a.HostsFile, maxHostsFile, parseHosts, func(err error) {
			if err == nil {
				close(*id.relisted.Swap(newSignal()))
			}
			tell(a.Name, err)
		})
		if err != nil {
			return fmt.Errorf("agent %q: hosts_file: %w", a.Name, err)
		}
	}
	return nil
}

func newSignal() *chan struct{} {
	c := make(chan struct{})
	return &c
}

// Relisted returns a channel that is closed at the next change of a file of hosts.
func (id *Identifier) Relisted() <-chan struct{} { return *id.relisted.Load() }

// window is a part of each day by the wall clock of a zone. So an hour that is skipped in spring
// does not exist, and an hour that comes twice in autumn counts twice.
type window struct {
	from, to int // seconds since midnight; to is exclusive, and may be before from
	zone     *time.Location
}

const secondsOfDay = 24 * 60 * 60

// parseWindow reads a window such as "22:00-06:00 Europe/Berlin".
func parseWindow(s string) (w window, err error) {
	hours, zone, _ := strings.Cut(s, " ")
	from, to, _ := strings.Cut(hours, "-")
	begins, err := time.Parse("15:04", from)
	ends, errEnd := time.Parse("15:04", to)
	if w.zone, _ = time.LoadLocation(zone); w.zone == nil || zone == "Local" {
		return w, fmt.Errorf("window %q: there is no time zone %q", s, zone)
	}
	w.from, w.to = clockOf(begins), clockOf(ends)
	if errors.Join(err, errEnd) != nil || w.from == w.to {
		return w, fmt.Errorf("window %q: want two different times from 00:00 to 23:59, such as 22:00-06:00", escape.Cut(s, maxName))
	}
	return w, nil
}

func clockOf(t time.Time) int { return t.Hour()*3600 + t.Minute()*60 + t.Second() }

func (w window) has(now time.Time) bool {
	s := clockOf(now.In(w.zone))
	if w.from < w.to {
		return w.from <= s && s < w.to
	}
	return w.from <= s || s < w.to
}

// turn returns the first time from now on at which the window is open, or closed. Between two
// changes of the zone's offset, the clock runs evenly. At a change it may jump forward past that
// time, or back.
func (w window) turn(now time.Time, open bool) time.Time {
	for range 8 { // a zone changes its offset a few times a year
		t := now.In(w.zone)
		if w.has(now) == open {
			break
		}
		at := w.to
		if open {
			at = w.from
		}
		ahead := (at - clockOf(t) + secondsOfDay) % secondsOfDay
		next := now.Add(time.Duration(ahead)*time.Second - time.Duration(t.Nanosecond()))
		_, end := t.ZoneBounds()
		if end.IsZero() || next.Before(end) {
			return next
		}
		now = end
	}
	return now
}

// closing returns when all windows are closed, or zero if one of them is always open.
func closing(windows []window, now time.Time) time.Time {
	for range 4 * len(windows) { // they may overlap, and extend past midnight
		i := slices.IndexFunc(windows, func(w window) bool { return w.has(now) })
		if i < 0 {
			return now
		}
		now = windows[i].turn(now, false)
	}
	return time.Time{}
}

// Visit returns the Visit-time of the agent's group and the time until it begins. That time is 0
// during the Visit-time, and if the group has none.
func (b Bound) Visit(now time.Time) (v robotstxt.VisitTime, wait time.Duration) {
	v, ok := b.Own.VisitTime()
	if !ok {
		return v, 0
	}
	w := window{int(v.From) * 60, int(v.To) * 60 % secondsOfDay, time.UTC}
	return v, w.turn(now, true).Sub(now)
}

// visit refuses a request outside of the Visit-time of the site.
func (d *Decision) visit(b Bound) {
	if !d.Allowed || d.WouldDeny {
		return
	}
	if v, wait := b.Visit(d.At); wait > 0 {
		d.deny(ReasonVisitTime, "")
		d.Group, d.Rule, d.Line, d.RetryAfter = b.Own.Name(), v.String(), int(v.Line), wait
	}
}
