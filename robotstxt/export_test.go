package robotstxt

// Canonical is the form in which a target is compared.
func Canonical(target string) string { return string(appendTarget(nil, target)) }

// IsCanonical is the shortcut for targets that are their own canonical form.
var IsCanonical = isCanonical

// MatchesIndexed is matches with an index of the target.
func MatchesIndexed(pattern, target string, end bool) bool {
	x := newGramIndex(target)
	defer (&gramIndexes{x}).release()
	return matches(pattern, target, end, x)
}

// Matches is matches without one.
func Matches(pattern, target string, end bool) bool { return matches(pattern, target, end, nil) }
