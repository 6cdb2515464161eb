package simulate

import (
	"slices"

	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
)

// fromLog returns what the log says of a robots.txt that the line did not look up.
func (k *lookup) fromLog(a robotscache.Asker) (w known) {
	v, agent := k.inForce(""), ""
	if v == nil {
		k.cause = CauseText
		return w
	}
	_ = w.state.UnmarshalText([]byte(v.State)) // it was checked
	// An agent without its own answer gets the same one, or never asked.
	if own := k.inForce(a.Token); own != nil && fetch.TurnedAway(w.state, v.Status) {
		v, agent = own, a.Token
		_ = w.state.UnmarshalText([]byte(v.State))
	}
	if w.state == fetch.StateRules {
		_ = w.sha.UnmarshalText([]byte(v.SHA256))
		w.access = fetch.AccessRules
		return w
	}
	return k.byPolicy(agent, w, false)
}

// inForce returns the version that counted when the line was decided: until it expired or, if
// nobody asked again, for a day, which is the longest time that a gateway uses an answer.
func (k *lookup) inForce(agent string) *audit.Version {
	for v := range k.line.Then(agent) {
		if k.at.Before(v.From.Add(dayLength)) || k.at.Before(v.Until) {
			return v
		}
	}
	return nil
}

// byPolicy returns what an absent or unreachable robots.txt permits by the policy of [Config]. The
// line has the state and, if told is set, the access that it permitted; the log has the run of
// failures and the status. If several answers are possible, the line's counts. If the line's is not
// among them, the result is unknown.
func (k *lookup) byPolicy(agent string, w known, told bool) known {
	all := k.permitted(agent, w, told)
	switch {
	case len(all) > 0 && !slices.ContainsFunc(all, func(other known) bool { return other != all[0] }):
		w = all[0]
	case told && (len(all) == 0 || slices.Contains(all, w)):
		k.asRecorded = true
	default:
		k.cause = CauseState
	}
	return w
}

// permitted returns what a robots.txt in the state of the line may have permitted by the policy,
// given what the log says of it.
func (k *lookup) permitted(agent string, w known, told bool) (all []known) {
	policy := k.cfg.Policy.Interpretation.Policy
	switch {
	case w.state == fetch.StateAbsent && !policy.ForbiddenDisallow:
		return []known{{state: w.state, access: fetch.AccessAllow}}
	case w.state == fetch.StateAbsent && told && w.access == fetch.AccessDeny:
		return []known{w}
	case w.state == fetch.StateUnreachable && policy.Mode >= fetch.ModeStrict:
		return []known{{state: w.state}}
	}
	for v := range k.line.Then(agent) {
		r := fetch.Record{State: w.state, Status: v.Status, FetchedAt: k.at, FreshUntil: k.at.Add(dayLength)}
		n := known{state: w.state}
		switch {
		case w.state == fetch.StateAbsent && v.State == w.state.String():
		case w.state == fetch.StateUnreachable && !v.UnreachableSince.IsZero():
			r.UnreachableSince = v.UnreachableSince
			if n.sha.UnmarshalText([]byte(v.SHA256)) == nil {
				r.LastGood = &fetch.Copy{SHA256: n.sha, Body: []byte{'#'}} // the policy asks only whether there is one
			}
		default:
			continue
		}
		if n.access = policy.Access(r, k.at); n.access != fetch.AccessLastGood {
			n.sha = fetch.Sum{}
		}
		all = append(all, n)
	}
	return all
}
