package enforce

import (
	"cmp"
	"strconv"
	"strings"
	"time"
)

// Lengths that clients show without cutting (clients.md 19, 20), in octets.
const (
	maxPhrase  = 99
	maxSummary = 120
)

// sentence is a statement that stands by itself: fixed words around one part that may be
// cut to make it fit. All of it is printable ASCII.
type summary struct{ before, subject, after string }

// fit returns the sentence in at most limit octets. If cutting the subject is not enough,
// the end is cut as well.
func (s summary) fit(limit int) string {
	room := max(limit-len(s.before)-len(s.after), 2*len(ellipsis))
	return cut(s.before+cut(s.subject, room)+s.after, limit)
}

// maxWho bounds the octets of an agent's name in a sentence.
const maxWho = 24

// summaryOf says what was refused and why. The subject is the URL or the host that was
// asked for, or the name of an agent.
func summaryOf(d Decision, url string) summary {
	url = withoutQuery(url)
	who := ascii(cmp.Or(d.Agent, "this crawler"), maxWho)
	host := d.host()
	switch d.Reason {
	case ReasonDisallowed:
		after := " (line " + strconv.Itoa(d.Line) + ")"
		if d.Form == PathResolved {
			url, after = withoutQuery(d.Origin.String()+ascii(d.Judged, maxShown)), " (resolved path, line "+strconv.Itoa(d.Line)+")"
		}
		return summary{"Forbidden by robots.txt: " + who + " may not fetch ", url, after}
	case ReasonUnreachable:
		return unreachableSummary(d, host)
	case ReasonRobotsForbidden:
		return summary{"Forbidden: ", host, " does not show its robots.txt" + detail(d)}
	case ReasonPending:
		return summary{"Forbidden: robots.txt of ", host, " is still being fetched" + retry(d)}
	case ReasonTunnelRestricted:
		return summary{"Forbidden by robots.txt: no blind tunnel for " + who + " to ", host, ", which restricts it"}
	case ReasonConnectDenied:
		return summary{"Forbidden: no tunnels (CONNECT) to ", host, ""}
	case ReasonKillSwitch:
		return summary{"Forbidden: stopped by the operator's kill switch: " + who + " to ", host, ""}
	case ReasonOperatorDeny:
		return summary{"Forbidden: the operator of the gateway denies requests to ", host, ""}
	case ReasonUnidentified:
		return summary{"Forbidden: unknown crawler, User-Agent ", shownUserAgent(d), ""}
	case ReasonAgentMismatch:
		return summary{"Forbidden: not all conditions of agent ", who, " hold"}
	case ReasonUserAgentConflict:
		return summary{"Forbidden: agent " + who + " with another agent's User-Agent ", shownUserAgent(d), ""}
	case ReasonRateLimited, ReasonConcurrency, ReasonQueueFull, ReasonOverloaded:
		return summary{"Too many requests: the gateway paces those to ", host, retry(d)}
	case ReasonBackoff:
		return summary{"Too many requests: ", host, " has asked for a pause" + retry(d)}
	case ReasonCrawlDelay:
		return summary{"Forbidden: ", host, " asks for too long a pause" + detail(d)}
	case ReasonForbiddenAddress, ReasonForbiddenPort, ReasonBadTarget, ReasonMethod, ReasonBadRequest, ReasonURLSize:
		return summary{d.Reason.Title() + ": ", url, ""}
	case ReasonClientNotAllowed, ReasonCredentialsMissing, ReasonCredentialsWrong, ReasonCredentialsBusy, ReasonNotReady:
		return summary{fixedSummary(d.Reason), "", retry(d)}
	default:
		return summary{d.Reason.Title() + ": ", host, retry(d)}
	}
}

// fixedSummary is one that names nothing of the request.
func fixedSummary(r Reason) string {
	switch r {
	case ReasonClientNotAllowed:
		return "Forbidden: clients at this address may not use the gateway"
	case ReasonCredentialsMissing:
		return "Proxy credentials are missing: send those of your agent to the proxy"
	case ReasonCredentialsWrong:
		return "Proxy credentials are wrong: check the user name and password sent to the proxy"
	case ReasonCredentialsBusy:
		return "Too many proxy credentials are being checked"
	case ReasonNotReady:
		return "The gateway is not ready: it could not open its store, its orders or its clocks"
	default:
		return ""
	}
}

// unreachableSummary names the cause. Where that takes too many octets, the field Retry-After has
// to do.
func unreachableSummary(d Decision, host string) summary {
	s := summary{"Forbidden: robots.txt of ", host, " is unreachable" + detail(d)}
	if more := retry(d); len(s.before+s.subject+s.after+more) <= maxPhrase {
		s.after += more
	}
	return s
}

// host is the authority that was asked for, for people.
func (d Decision) host() string {
	if d.Origin.IsZero() {
		return "the target"
	}
	return ascii(d.Origin.Authority(), maxShown)
}

func shownUserAgent(d Decision) string {
	if d.UserAgent == "" {
		return "missing"
	}
	return strconv.Quote(ascii(d.UserAgent, maxSummary))
}

// maxWhy bounds the octets of a detail in a sentence.
const maxWhy = 44

func detail(d Decision) string {
	if d.Detail == "" {
		return ""
	}
	return " (" + ascii(d.Detail, maxWhy) + ")"
}

func retry(d Decision) string {
	if d.RetryAfter <= 0 {
		return ""
	}
	return ", retry after " + strconv.FormatInt(wholeSeconds(d.RetryAfter), 10) + " s"
}

// wholeSeconds is a Retry-After value: rounded up, as coming too early is refused again.
func wholeSeconds(d time.Duration) int64 {
	s := int64(d / time.Second)
	if d%time.Second > 0 {
		s++
	}
	return s
}

// withoutUserinfo takes credentials out of a URL. Of one that is not correct, all that
// could be meant as credentials.
func withoutUserinfo(url string) string {
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok || strings.ContainsAny(scheme, "/?#@") {
		if at := strings.LastIndexByte(url, '@'); at >= 0 {
			return ellipsis + url[at:]
		}
		return url
	}
	end := len(rest)
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		end = i
	}
	if at := strings.LastIndexByte(rest[:end], '@'); at >= 0 {
		return scheme + "://" + ellipsis + rest[at:]
	}
	return url
}

// withoutQuery takes out of a URL what may be secret and is not what a rule is about most
// often: a sentence ends up in clients' logs.
func withoutQuery(url string) string {
	if before, _, found := strings.Cut(url, "?"); found {
		return before + "?" + ellipsis
	}
	return url
}
