package robotstxt

import "strings"

// ProductToken takes the product token from the value of a User-Agent field (RFC 9110 section 10.1.5): the name of its
// first product. Where that is Mozilla, which all browsers and many crawlers say, it is the name behind "compatible;"
// in a comment, as in
//
//	Mozilla/5.0 (compatible; ExampleBot/1.0; +https://example.com/bot)
//
// The result is "" when there is neither, as with all browsers of today. It may hold digits and dots, which RFC 9309
// section 2.2.1 does not allow in a product token, as in w3m: [Agent] says what becomes of such names.
func ProductToken(userAgent string) string {
	first := productName(strings.TrimLeft(userAgent, " \t"))
	if !equalFold(first, "mozilla") {
		return first
	}
	for rest := userAgent; ; {
		_, comment, found := strings.Cut(rest, "(")
		if !found {
			return ""
		}
		comment, rest = cutComment(comment)
		if name := compatibleName(comment); name != "" {
			return name
		}
	}
}

// productName returns the octets that s begins with and that names of products are made of.
func productName(s string) string {
	for i := range len(s) {
		if c := s[i]; !isUnreserved(c) || c == '~' {
			return s[:i]
		}
	}
	return s
}

// cutComment divides s behind the parenthesis that closes the comment it begins with.
func cutComment(s string) (comment, rest string) {
	depth := 1
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return s[:i], s[i+1:]
			}
		}
	}
	return s, ""
}

// compatibleName returns the product name in the item behind "compatible".
func compatibleName(comment string) string {
	for found := false; ; {
		item, rest, more := strings.Cut(comment, ";")
		item = strings.TrimSpace(item)
		if found {
			name := productName(item)
			if equalFold(name, "msie") || equalFold(name, "mozilla") { // old browsers
				return ""
			}
			return name
		}
		if !more {
			return ""
		}
		found, comment = equalFold(item, "compatible"), rest
	}
}
