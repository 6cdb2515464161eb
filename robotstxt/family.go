package robotstxt

// families are the crawlers that look for other groups besides their own (seeds 002 and 003, the
// tables of Google's crawlers).
var families = map[string]Agent{
	"googlebot-news":   {Tokens: []string{"Googlebot-News", "Googlebot"}},
	"googlebot-image":  {Tokens: []string{"Googlebot-Image", "Googlebot"}},
	"googlebot-video":  {Tokens: []string{"Googlebot-Video", "Googlebot"}},
	"googlebot-mobile": {Tokens: []string{"Googlebot-Mobile", "Googlebot"}},
	// Mediapartners is its other name; without a group of its own it follows *, not Googlebot.
	"mediapartners-google": {Tokens: []string{"Mediapartners-Google", "Mediapartners"}},
	"adsbot-google":        {Tokens: []string{"AdsBot-Google"}, IgnoreWildcard: true},
}

// Family returns the Agent for a product token: for well-known crawlers with the tokens of their
// family, for all others with the token alone. The tokens must not be changed.
func Family(token string) Agent {
	token = trimToken(token)
	lowerCase := make([]byte, len(token))
	for i := range len(token) {
		lowerCase[i] = lower(token[i])
	}
	if a, ok := families[string(lowerCase)]; ok {
		return a
	}
	return Agent{Tokens: []string{token}}
}
