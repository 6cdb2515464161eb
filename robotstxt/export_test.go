package robotstxt

import "slices"

// Canonical returns the form in which a target is compared.
func Canonical(target string) string { return string(appendTarget(nil, target)) }

// IsCanonical is the shortcut for targets that are their own canonical form.
var IsCanonical = isCanonical

// ByHeads returns rs with an index of heads, even if it has few rules.
func (rs *Ruleset) ByHeads() *Ruleset {
	indexed := *rs
	indexed.blocks, indexed.byHead = slices.Clone(rs.blocks), nil
	indexed.indexHeads(1)
	return &indexed
}
