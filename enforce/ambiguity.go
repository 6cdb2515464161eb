package enforce

import (
	"fmt"
	"slices"
	"strings"
)

// ambiguity says how one request can match both agents equally well, or returns "". Agents with
// different kinds of conditions never do: the stronger evidence decides.
//
// All of it is exact but for certificates: one that carries the names of two agents cannot be
// foreseen, and is refused when it comes.
func (a *agent) ambiguity(b *agent) string {
	if a.conditions != b.conditions {
		return ""
	}
	var both []string
	for _, kind := range conditionKinds {
		if a.conditions&kind.bit == 0 {
			continue
		}
		how := a.overlap(b, kind.bit)
		if how == "" {
			return ""
		}
		both = append(both, how)
	}
	return strings.Join(both, ", ")
}

// overlap says how one sender can meet a condition of both agents, or returns "". A product goes
// before every glob (see [Identifier]), so those two never contend.
func (a *agent) overlap(b *agent, kind condition) string {
	switch kind {
	case byCredential:
		return common("credential user", a.Credentials, b.Credentials)
	case byCertificate:
		return common("client certificate name", a.ClientCertificates, b.ClientCertificates)
	case bySource:
		for _, p := range a.from {
			if i := slices.IndexFunc(b.from, p.Overlaps); i >= 0 {
				return fmt.Sprintf("sources %s and %s", p, b.from[i])
			}
		}
	case byUserAgent:
		if how := common("User-Agent product", a.products, b.products); how != "" {
			return how
		}
		for _, g := range a.globs {
			for _, h := range b.globs {
				if witness, ok := g.intersect(h); ok {
					return fmt.Sprintf("User-Agent patterns %q and %q (both match %q)", g, h, witness)
				}
			}
		}
	}
	return ""
}

// common names the first element that both lists have, or returns "".
func common(kind string, a, b []string) string {
	if i := slices.IndexFunc(a, func(s string) bool { return slices.Contains(b, s) }); i >= 0 {
		return fmt.Sprintf("%s %q", kind, a[i])
	}
	return ""
}
