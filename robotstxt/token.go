package robotstxt

import "strings"

// ProductToken takes the product token from the value of a User-Agent field; "" when it has none.
func ProductToken(userAgent string) string {
	i := strings.IndexAny(userAgent, "/ ")
	if i < 0 {
		i = len(userAgent)
	}
	return userAgent[:i]
}

// Family returns the product tokens under which a well-known crawler looks for its group.
func Family(token string) Agent { return Agent{Tokens: []string{token}} }
