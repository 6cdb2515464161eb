package enforce

import "strings"

// maxToken bounds the octets of a product token. Longer ones name nobody.
const maxToken = 128

// products calls yield for each product of a User-Agent field in order, until it
// returns false: for every product of RFC 9110 section 10.1.5, its version left out,
// and for every item that follows the word "compatible" in a comment, the place in
// which crawlers that pose as browsers name themselves (clients.md 3). A nested comment
// is read as part of the outer one.
func products(userAgent string, yield func(product string) bool) {
	depth, compatible := 0, false
	for s := userAgent; s != ""; {
		switch c := s[0]; {
		case c == '(':
			if depth == 0 {
				compatible = false
			}
			depth++
			s = s[1:]
		case c == ')':
			depth = max(depth-1, 0)
			s = s[1:]
		case !isTokenOctet(c):
			s = s[1:]
		case depth > 0:
			item, rest := cutItem(s)
			if name := leadingProduct(item); strings.EqualFold(name, "compatible") {
				compatible = true
			} else if compatible && name != "" && !yield(name) {
				return
			}
			s = rest
		default:
			word, rest := cutWord(s)
			if name := leadingProduct(word); name != "" && !yield(name) {
				return
			}
			s = rest
		}
	}
}

// cutItem cuts an item of a comment off s: it ends at a semicolon, a comma or a parenthesis.
func cutItem(s string) (item, rest string) {
	if i := strings.IndexAny(s, ";,()"); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

// cutWord cuts a word off s: it ends at a blank, a separator or a comment.
func cutWord(s string) (word, rest string) {
	if i := strings.IndexAny(s, " \t;,("); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

// leadingProduct returns the token that s starts with, or "" if it is not a product:
// what follows a product's name is nothing, a version or a separator. So the scheme of
// a URL is none.
func leadingProduct(s string) string {
	end := 0
	for end < len(s) && isTokenOctet(s[end]) {
		end++
	}
	if end < len(s) && strings.IndexByte("/ \t;,", s[end]) < 0 {
		return ""
	}
	return s[:end]
}

// isTokenOctet reports whether c may stand in a token of RFC 9110 section 5.6.2.
func isTokenOctet(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	default:
		return c != 0 && strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
	}
}

// isToken reports whether s is such a token.
func isToken(s string) bool {
	for i := range len(s) {
		if !isTokenOctet(s[i]) {
			return false
		}
	}
	return s != ""
}

// lookupFold returns m's value for the ASCII lower-case form of key. It allocates nothing.
func lookupFold[V any](m map[string]V, key string) (value V, ok bool) {
	var buf [maxToken]byte
	if len(key) > len(buf) {
		return value, false
	}
	for i := range len(key) {
		buf[i] = lower(key[i])
	}
	value, ok = m[string(buf[:len(key)])]
	return value, ok
}

// lower returns the ASCII lower-case form of c.
func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + ('a' - 'A')
	}
	return c
}
