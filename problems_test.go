package crawlgate

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/testdocs"
)

// settingsOfWaiting are the settings with which each client slows down at one host and waits for
// Retry-After.
const settingsOfWaiting = `
## Settings of clients

| client | fewer requests to one host at once | waiting for Retry-After |
|---|---|---|
| [Scrapy](../clients/scrapy.md) | ` + "`CONCURRENT_REQUESTS_PER_DOMAIN`" + ` (8) | the middleware of that page; without it, Scrapy retries at once, twice |
| [Crawlee](../clients/crawlee-cheerio.md) | ` + "`maxConcurrency` (200), `sameDomainDelaySecs`" + ` | none; it retries at once, ` + "`maxRequestRetries`" + ` (3) times |
| [Colly](../clients/colly.md) | ` + "`LimitRule{DomainGlob: \"*\", Parallelism: 2}`" + ` | ` + "`Request.Retry` in `OnError`" + `, as on that page |
| [requests, urllib3](../clients/requests.md) | fewer threads | ` + "`Retry(5, status_forcelist=[429, 503])`" + ` |
| [got](../clients/got.md), [undici](../clients/node-fetch.md) | fewer promises at once | got's ` + "`retry: {limit: 5}`, undici's `RetryAgent`" + ` |
| [curl](../clients/curl.md) | ` + "`--parallel-max`" + ` | ` + "`--retry 5`" + ` |
| [wget](../clients/wget.md) | it sends one at a time | ` + "`--retry-on-http-error=429,503`" + ` waits one second longer each time, up to ` + "`--waitretry`" + ` |

Set the time limit of your client above the time for which the gateway [holds a request](../politeness.md#how-long-a-request-is-held). [All clients](../clients/README.md).
`

// settingsOfLeaving are the settings with which each client treats a 403 that a retry does not
// change.
const settingsOfLeaving = `
## Settings of clients

| client | behaviour and setting |
|---|---|
| [Scrapy](../clients/scrapy.md) | treats the 403 as final; with ` + "`handle_httpstatus_list = [403]`" + ` the spider gets it, and can keep the URL for later |
| [Crawlee](../clients/crawlee-cheerio.md) | treats it as a block, and retries at once, 3 times; ` + "`sessionPoolOptions: {blockedStatusCodes: []}`" + ` ends that |
| [Colly](../clients/colly.md) | final; ` + "`OnError`" + ` gets it |
| [requests, urllib3](../clients/requests.md) | final; leave 403 out of ` + "`status_forcelist`" + `, because it also means that robots.txt forbids the URL |
| [got](../clients/got.md), [undici](../clients/node-fetch.md) | final; leave 403 out of ` + "`statusCodes`" + `, for the same reason |
| [curl](../clients/curl.md) | final |
| [wget](../clients/wget.md) | final; leave 403 out of ` + "`--retry-on-http-error`" + `, for the same reason |

[All clients](../clients/README.md).
`

// problemPage returns the page for the problem type of a refusal.
func problemPage(t *testing.T, r enforce.Reason) []byte {
	t.Helper()
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n\n", r.Info().Title)
	if r.Info().Status == enforce.StatusClientClosedRequest {
		fmt.Fprintf(&b, "The client left before the gateway answered, and got no answer. The access log has reason `%s` and status 499.\n", r)
		return b.Bytes()
	}
	fmt.Fprintf(&b, "%s\n\n", r.Info().Hint)
	switch after := r.RetryAfter(); {
	case r.Info().Recorded:
		b.WriteString("Do not retry before the time `until` in the header `Crawlgate-Decision` ([its parts](../access-log.md#what-a-refusal-says)). " +
			"Until then, the gateway uses\nthis copy of the site's robots.txt.\n\n")
	case after > 0:
		fmt.Fprintf(&b, "`Retry-After` is %d s if the gateway cannot tell when this ends.\n\n", after/time.Second)
	}
	golden := func(name string) []byte {
		example, err := os.ReadFile(filepath.Join("enforce", "testdata", "golden", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		return bytes.TrimRight(example, "\n")
	}
	fmt.Fprintf(&b, "An answer looks like this:\n\n```\n%s\n```\n", golden(string(r)))
	switch r { //nolint:exhaustive // others have no more to show
	case enforce.ReasonRateLimited, enforce.ReasonConcurrency, enforce.ReasonQueueFull, enforce.ReasonBackoff:
		b.WriteString(settingsOfWaiting)
	case enforce.ReasonCrawlDelay:
		b.WriteString(settingsOfLeaving)
	case enforce.ReasonUnreachable:
		b.WriteString(settingsOfLeaving)
		fmt.Fprintf(&b, "\nIf the cause is `upstream` or `local`, the fault is on the gateway's side, not the site's "+
			"([the table of causes](../status-table.md)).\nIn this example, the operator's upstream proxy answered instead of the site:\n\n```\n%s\n```\n",
			golden("unreachable_upstream"))
	case enforce.ReasonDisallowed:
		b.WriteString("\nA client whose Accept prefers `text/html`, such as a browser, gets a page. It shows the line that decides among its " +
			"neighbours:\n\n![The page of a refusal: the lines of the site's robots.txt, the deciding one marked, and below them the facts]" +
			"(../images/refusal.png)\n")
		fmt.Fprintf(&b, "\nA path is also disallowed if servers resolve it to a disallowed one ([`paths strict`](../caddyfile-agents.md#paths)). "+
			"The answer\nthen says `judged as`, and the log has `form: resolved`:\n\n```\n%s\n```\n", golden("disallowed_resolved"))
	}
	fmt.Fprintf(&b, "\n## In headers and logs\n\nStatus %d. Reason `%s` in the header `%s`, in the access log and in metrics. ", r.Info().Status, r, enforce.HeaderDecision)
	if token := r.Info().ProxyError; token != "" {
		fmt.Fprintf(&b, "Error type `%s` in the header\n`Proxy-Status` (RFC 9209). ", token)
	}
	switch {
	case r.Failure():
		b.WriteString("The gateway counts it as a failure: `decision` in the log is `error`.\n")
	case r.Hard():
		b.WriteString("The gateway refuses in every mode, also in `report` and `off`.\n")
	default:
		b.WriteString("In `mode report` the request passes, and the log has `would_deny: true`.\n")
	}
	return b.Bytes()
}

// problemIndex returns the list of all reasons.
func problemIndex() []byte {
	var b bytes.Buffer
	b.WriteString("# Reasons\n\nYou find here what each reason of a refusal means, and what to do. The links `more` and `type` of a refusal lead to the page of its\n" +
		"reason. `reason` in the access log has no other values than these. The pages are made from the code.\n")
	section := func(title string, is func(enforce.Reason) bool, row func(enforce.Reason)) {
		fmt.Fprintf(&b, "\n## %s\n\n", title)
		for _, r := range enforce.Reasons() {
			if is(r) {
				row(r)
			}
		}
	}
	page := func(r enforce.Reason) {
		fmt.Fprintf(&b, "* [`%s`](%s.md): %d, %s\n", r, r.Slug(), r.Info().Status, r.Info().Title)
	}
	section("Allowed", enforce.Reason.Allows, func(r enforce.Reason) { fmt.Fprintf(&b, "* `%s`: %s\n", r, r.Info().Title) })
	section("Refused", func(r enforce.Reason) bool { return !r.Allows() && !r.Failure() }, page)
	section("Failed", enforce.Reason.Failure, page)
	return b.Bytes()
}

// TestProblemPages checks that each reason has its page, that there is no other page, and that the
// pages match the code. go test . -run TestProblemPages -update writes them.
func TestProblemPages(t *testing.T) {
	folder := filepath.Join("docs", "problems")
	pages := map[string][]byte{"README.md": problemIndex()}
	for _, r := range enforce.Reasons() {
		if !r.Allows() {
			pages[r.Slug()+".md"] = problemPage(t, r)
		}
	}
	for name, want := range pages {
		testdocs.Generated(t, "problems/"+name, string(want))
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, ok := pages[e.Name()]; !ok {
			t.Errorf("docs/problems/%s is not the page of a reason", e.Name())
		}
	}
}
