package simulate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// history gives the versions of a record, the newest first.
func (k *lookup) history(ctx context.Context, key fetch.Key) ([]robotscache.Version, error) {
	if versions, ok := k.histories[key]; ok {
		return versions, nil
	}
	versions, err := k.cfg.Texts.History(ctx, key)
	if err != nil && !errors.Is(err, robotscache.ErrNotFound) {
		return nil, fmt.Errorf("reading the history of %s: %w", key, err)
	}
	if len(k.histories) >= maxHistories {
		clear(k.histories)
	}
	k.histories[key] = versions
	return versions, nil
}

// fromHistory is what the store says of the time of the line. A version counts for as long as a
// gateway uses a text without asking for it again.
func (k *lookup) fromHistory(ctx context.Context, o origin.Origin, a robotscache.Asker) (w known, err error) {
	key := fetch.Key{Origin: o}
	v, ok, err := k.versionThen(ctx, key)
	if ok && a.Token != "" && fetch.TurnedAway(v.State, v.Status) {
		var own robotscache.Version
		if own, ok, err = k.versionThen(ctx, fetch.Key{Origin: o, Agent: a.Token}); ok {
			v, key.Agent = own, a.Token
		}
		ok = true // without one its answer is the same, or nobody asked
	}
	if err != nil {
		return w, err
	}
	if !ok {
		k.cause = CauseText
		return w, nil
	}
	w = known{state: v.State, cause: v.Cause, sha: v.SHA256}
	if v.State == fetch.StateRules {
		w.access = fetch.AccessRules
		return w, nil
	}
	return k.byPolicy(ctx, key, w, false)
}

// versionThen is the version of a record at the time of the line.
func (k *lookup) versionThen(ctx context.Context, key fetch.Key) (v robotscache.Version, ok bool, err error) {
	versions, err := k.history(ctx, key)
	i := slices.IndexFunc(versions, func(v robotscache.Version) bool { return !v.FirstSeen.After(k.at) })
	if err != nil || i < 0 || k.at.After(versions[i].LastSeen.Add(dayLength)) {
		return v, false, err
	}
	return versions[i], true, nil
}

// byPolicy is what a robots.txt that was not to be had permits by the policy of [Config]. The line
// has the state, and what that permitted then, if told; the history of the store has the run of
// failures and the status. Where they leave several answers, the one of the line counts, and where
// it is none of these, nothing is known.
func (k *lookup) byPolicy(ctx context.Context, key fetch.Key, w known, told bool) (known, error) {
	versions, err := k.history(ctx, key)
	if err != nil {
		return w, err
	}
	var all []known
	if w.state == fetch.StateAbsent {
		all = k.ofAbsent(versions, w, told)
	} else {
		all = k.ofUnreachable(versions, w, told)
	}
	switch {
	case len(all) > 0 && !slices.ContainsFunc(all, func(other known) bool { return other != all[0] }):
		w = all[0]
	case told && (len(all) == 0 || slices.Contains(all, w)):
		k.asRecorded = true
	default:
		k.cause = CauseState
	}
	return w, nil
}

// ofAbsent is what a robots.txt without a text may permit. A version has the status of its latest
// retrieval only.
func (k *lookup) ofAbsent(versions []robotscache.Version, w known, told bool) (all []known) {
	allow, deny := w, w
	allow.access, deny.access = fetch.AccessAllow, fetch.AccessDeny
	switch {
	case !k.cfg.Policy.Reading.Policy.ForbiddenDisallow:
		return []known{allow}
	case told && w.access == fetch.AccessDeny:
		return []known{deny}
	}
	from, to := k.during(versions, w.state)
	for _, v := range versions[from:to] {
		forbidden := v.Status == http.StatusUnauthorized || v.Status == http.StatusForbidden
		changed := v.LastSeen.After(k.at) && v.LastSeen.After(v.FirstSeen)
		if v.State == fetch.StateAbsent && (!forbidden || changed) {
			all = append(all, allow)
		}
		if v.State == fetch.StateAbsent && (forbidden || changed) {
			all = append(all, deny)
		}
	}
	return all
}

// ofUnreachable is what a robots.txt that cannot be reached may permit: by the earliest and by the
// latest moment at which the run of failures may have begun, and by the answer before it.
func (k *lookup) ofUnreachable(versions []robotscache.Version, w known, told bool) (all []known) {
	policy := k.cfg.Policy.Reading.Policy
	if policy.Mode >= fetch.ModeStrict {
		return []known{{state: w.state, cause: w.cause}}
	}
	from, to := k.during(versions, w.state)
	for i, v := range versions[from:to] {
		earliest, latest := v.LastSeen, k.end
		if earliest.After(k.at) {
			earliest = v.FirstSeen // it was the answer again later
		}
		if v.State == fetch.StateUnreachable {
			earliest, latest = v.FirstSeen, v.FirstSeen
			if v = (robotscache.Version{}); from+i+1 < len(versions) {
				v = versions[from+i+1]
				earliest = v.LastSeen
			}
		}
		if told && w.access != fetch.AccessDeny {
			v.SHA256 = w.sha
		}
		all = append(all, ofRun(policy, w, v.SHA256, earliest, k.end), ofRun(policy, w, v.SHA256, latest, k.at))
	}
	return all
}

// ofRun is what a run of failures permits at a moment, where the text before it has the hash.
func ofRun(p fetch.Policy, w known, sha fetch.Sum, since, at time.Time) known {
	r := fetch.Record{State: w.state, UnreachableSince: since}
	if sha != (fetch.Sum{}) {
		r.LastGood = &fetch.Copy{SHA256: sha, Body: []byte{'#'}} // the policy asks only whether there is one
	}
	w.access, w.sha = p.Access(r, at), fetch.Sum{}
	if w.access == fetch.AccessLastGood {
		w.sha = sha
	}
	return w
}

// takenUp bounds the time from the answer of a site until the gateway decides by it: it is read, kept
// and published meanwhile, which takes milliseconds where the machine is not starved.
const takenUp = 10 * time.Second

// during gives the range of the versions that may have counted when the line was decided, where the
// line has a state. An answer that had just come may not have been taken up: if none in the range is
// of that state, the one before counted still.
func (k *lookup) during(versions []robotscache.Version, state fetch.State) (from, to int) {
	since := func(t time.Time) int {
		i := slices.IndexFunc(versions, func(v robotscache.Version) bool { return !v.FirstSeen.After(t) })
		if i < 0 {
			i = len(versions)
		}
		return i
	}
	from, to = since(k.end), min(since(k.at)+1, len(versions))
	ofState := func(v robotscache.Version) bool { return v.State == state }
	if to < len(versions) && !slices.ContainsFunc(versions[from:to], ofState) && k.at.Sub(versions[to-1].FirstSeen) < takenUp {
		to++
	}
	return from, to
}
