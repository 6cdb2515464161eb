package robotstxt

// name is a product token that has rules, or *.
type name struct {
	text         span   // as first written
	first, count uint32 // its blocks, in Ruleset.members
	delay        int32  // in Ruleset.delays, or none
}

// trimToken cuts a product token at its first slash or blank: RFC 9309 section 2.2.1 knows no version.
func trimToken[T ~string | ~[]byte](s T) T {
	for i := range len(s) {
		if s[i] == '/' || isBlank(s[i]) {
			return s[:i]
		}
	}
	return s
}

// trimLetters cuts s behind the octets that RFC 9309 section 2.2.1 allows in a product token.
func trimLetters[T ~string | ~[]byte](s T) T {
	for i := range len(s) {
		if octetClass[s[i]]&octetLetter == 0 {
			return s[:i]
		}
	}
	return s
}

// isWildcard reports whether the value of a user-agent line is *, alone or with a blank and anything behind it.
func isWildcard(value []byte) bool {
	return len(value) > 0 && value[0] == '*' && (len(value) == 1 || isBlank(value[1]))
}

// beginning is how many octets of a name are meant, and their hash.
type beginning struct {
	n    int
	hash uint64
}

// spelling returns, in one walk over the value of a user-agent line, what trimLetters and trimToken leave of it. Hashes
// of more than maxKey octets mean nothing.
func spelling(value []byte) (letters, word beginning) {
	hash, n := uint64(startName), 0
	for n < len(value) && octetClass[value[n]]&octetLetter != 0 {
		hash += uint64(lower(value[n])) * weights[n&maxKey]
		n++
	}
	letters = beginning{n, hash}
	for n < len(value) && value[n] != '/' && !isBlank(value[n]) {
		hash += uint64(lower(value[n])) * weights[n&maxKey]
		n++
	}
	return letters, beginning{n, hash}
}

func hashName[T ~string | ~[]byte](word T) uint64 {
	hash := uint64(startName)
	for i := range len(word) {
		hash += uint64(lower(word[i])) * weights[i]
	}
	return hash
}

func sameFold[T ~string | ~[]byte](a string, b T) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if lower(a[i]) != lower(b[i]) {
			return false
		}
	}
	return true
}

// findName returns the index of the name that a product token asks for. A token of letters, - and _ finds what lines
// begin with, any other finds a whole first word: the two kinds never look alike, so one table holds both.
func (rs *Ruleset) findName(token string) int32 {
	if token == "" || token == "*" || len(token) > maxKey || len(rs.names) == 0 {
		return none
	}
	return findName(rs, hashName(token), token)
}
