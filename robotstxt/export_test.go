package robotstxt

import "slices"

// IsCanonical is the shortcut for targets that are their own canonical form.
var IsCanonical = isCanonical

// ByHeads returns rs with an index of heads, even if it has few rules.
func (rs *Ruleset) ByHeads() *Ruleset {
	indexed := *rs
	indexed.blocks, indexed.byHead = slices.Clone(rs.blocks), nil
	indexed.indexHeads(1)
	return &indexed
}
