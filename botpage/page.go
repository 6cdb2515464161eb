package botpage

import (
	"bytes"
	_ "embed" // the pages
	"fmt"
	"hash/maphash"
	"html/template"
	"net/http"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/internal/pagestyle"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/pace"
)

var (
	//go:embed page.html
	pageHTML string
	pages    = template.Must(template.New("").Funcs(template.FuncMap{
		"head": func() template.HTML { return template.HTML(pagestyle.Head) }, //nolint:gosec // our own
		"cut":  func(s string) string { return escape.Cut(escape.Unprintable(s), 300) },
	}).Parse(pageHTML))
	policy = strings.Replace(pagestyle.Policy, "form-action 'none'", "form-action 'self'; frame-ancestors 'none'", 1)
)

// maxPath bounds the path of a question, in bytes. Its form has it too.
const maxPath = 1000

// page is the data for the templates.
type page struct {
	Title, Fault          string
	Agent                 *enforce.Agent // nil on an error page
	Tokens                []string
	UserAgent, Contact    string // the contact as a URL; empty if it is not one
	Obeys                 bool   // by its mode for most hosts
	Signs, Ranges, OptOut bool
	Delay                 pace.CrawlDelay
	Host, Path            string // of the question
	Readings              []reading
	Claim                 claim
	Token, Ticket         string
	Stopped, Done         bool
}

func (h *Handler) page(v view, title string) page {
	a := v.agent.Config
	// No host pattern names this host. A real host may have its own mode, and an exception.
	anyHost := origin.Origin{Scheme: "https", Host: "host.invalid", Port: 443}
	return page{
		Title: title, Agent: a, Tokens: v.agent.Robots.Tokens, UserAgent: userAgentOf(a), Contact: contactURL(a.Contact),
		Obeys: v.obeys(anyHost), Signs: a.Signs(), Ranges: len(h.ranges) > 0,
		OptOut: h.OptOut, Delay: v.Config.Politeness.CrawlDelay,
	}
}

// obeys reports whether the crawler's mode for an origin enforces robots.txt.
func (v view) obeys(o origin.Origin) bool {
	return v.site.Operator.Mode(o, v.agent.Config) == enforce.ModeEnforce
}

// showPage answers with the page for owners and, if they ask, with the robots.txt that was read
// from their site.
func (h *Handler) showPage(w http.ResponseWriter, r *http.Request, v view) error {
	p, q := h.page(v, v.agent.Agent), r.URL.Query()
	if p.Path = q.Get("path"); !strings.HasPrefix(p.Path, "/") {
		p.Path = "/" + p.Path
	}
	if asked := q.Get("host"); asked != "" {
		if !h.clients.allow(networkOf(r)) || !h.asked.Allow() {
			return h.tooMany(w)
		}
		host, ok := parseHost(asked)
		if !ok {
			return h.fail(w, http.StatusBadRequest, badClaim)
		}
		if len(p.Path) > maxPath {
			return h.fail(w, http.StatusBadRequest, "The path has more than 1,000 bytes.")
		}
		p.Host, p.Readings = host, v.readings(host, p.Path)
	}
	return render(w, http.StatusOK, "home", p)
}

// reading describes the last reading of a robots.txt, and its meaning for the agent.
type reading struct {
	Origin  string
	State   fetch.State
	At      time.Time
	Age     time.Duration
	SHA256  string // empty if no text is in force
	Allowed bool   // the path that was asked about
	Obeyed  bool   // by the crawler's mode there
	Delay   time.Duration
}

// readings returns the cached readings of a host. It causes no fetch.
func (v view) readings(host, path string) (list []reading) {
	for _, scheme := range []string{"https", "http"} {
		if target, err := origin.ParseTarget(scheme + "://" + host + path); err == nil {
			if r, known := v.reading(target, time.Now()); known {
				list = append(list, r)
			}
		}
	}
	return list
}

// reading finds the robots.txt that was fetched for all agents or, if the site refuses unknown
// agents, for this one.
func (v view) reading(target origin.Target, now time.Time) (r reading, known bool) {
	entry, known := v.Cache().PeekAs(target.Origin, v.agent.Asker())
	seen := entry.View(now)
	r = reading{
		Origin: target.Origin.String(), State: seen.State, At: seen.FetchedAt.UTC(), Age: now.Sub(seen.FetchedAt).Round(time.Second),
		Allowed: seen.Access == fetch.AccessAllow, Obeyed: v.obeys(target.Origin),
	}
	if seen.Rules != nil {
		bound := enforce.Bind(seen.Rules, v.agent.Robots, v.agent.Config.AlsoObey)
		m, _, _ := bound.Match(http.MethodGet, target.Path, enforce.PathsStrict)
		r.SHA256, r.Allowed = seen.SHA256.Hex(), m.Allowed
		r.Delay, _ = bound.Own.CrawlDelay()
	}
	return r, known
}

func render(w http.ResponseWriter, status int, name string, p page) error {
	var b bytes.Buffer
	if err := pages.ExecuteTemplate(&b, name, p); err != nil {
		return fmt.Errorf("rendering a crawler's page: %w", err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // as in publish
	return nil
}

func (h *Handler) fail(w http.ResponseWriter, status int, text string) error {
	return render(w, status, "error", page{Title: http.StatusText(status), Fault: text})
}

func (h *Handler) tooMany(w http.ResponseWriter) error {
	w.Header().Set("Retry-After", "20")
	return h.fail(w, http.StatusTooManyRequests, "There were too many requests in a short time. Please come back in 20 seconds.")
}

// limits bounds the rate of each key. The table has a fixed size: keys in the same place share a
// limit, and nobody can choose with whom.
type limits struct {
	seed   maphash.Seed
	places [1024]*rate.Limiter
}

func newLimits(every time.Duration, burst int) *limits {
	l := &limits{seed: maphash.MakeSeed()}
	for i := range l.places {
		l.places[i] = rate.NewLimiter(rate.Every(every), burst)
	}
	return l
}

func (l *limits) allow(key string) bool {
	return l.places[maphash.String(l.seed, key)%uint64(len(l.places))].Allow()
}

// networkOf is what the requests of a client are counted by: its address, or the /64 of an IPv6
// address.
func networkOf(r *http.Request) string { return engine.NetworkOf(engine.SourceOf(r)).String() }
