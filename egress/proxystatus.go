package egress

import "strings"

// maxDetails bounds the details of a Proxy-Status member.
const maxDetails = 240

// ProxyStatus writes a Proxy-Status list member (RFC 9209 section 2): the proxy's name, which must be a token,
// the error type and details in free text. Empty ones are left out. The text is put into the printable ASCII that
// a structured-field string may hold (RFC 8941 section 3.3.3) and cut.
func ProxyStatus(name, token, details string) string {
	var b strings.Builder
	b.WriteString(name)
	if token != "" {
		b.WriteString("; error=")
		b.WriteString(token)
	}
	if details != "" {
		b.WriteString(`; details="`)
		for _, c := range []byte(printable(details, maxDetails)) {
			if c == '"' || c == '\\' {
				b.WriteByte('\\')
			}
			b.WriteByte(c)
		}
		b.WriteByte('"')
	}
	return b.String()
}

// printable puts a text into printable ASCII of at most limit octets: white space and controls become a space,
// runs of them one, every other octet outside ASCII a question mark. Nothing leads or trails.
func printable(s string, limit int) string {
	b := make([]byte, 0, min(len(s), limit))
	for i := 0; i < len(s) && len(b) < limit; i++ {
		c := s[i]
		switch {
		case c >= 0x80:
			b = append(b, '?')
		case c <= ' ' || c == 0x7f:
			if len(b) > 0 && b[len(b)-1] != ' ' {
				b = append(b, ' ')
			}
		default:
			b = append(b, c)
		}
	}
	return strings.TrimRight(string(b), " ")
}

// withoutMembers takes the members that name the given party out of a structured-field list header such as
// Proxy-Status or Cache-Status, so that an origin cannot speak in that party's name. It gives nil when nothing
// is left. Values that cannot be split are dropped when they mention the name at all.
func withoutMembers(values []string, name string) []string {
	var kept []string
	for _, v := range values {
		if !containsFold(v, name) {
			kept = append(kept, v)
			continue
		}
		members, ok := splitList(v)
		if !ok {
			continue
		}
		var left []string
		for _, m := range members {
			if !strings.EqualFold(memberName(m), name) {
				left = append(left, m)
			}
		}
		if len(left) > 0 {
			kept = append(kept, strings.Join(left, ", "))
		}
	}
	return kept
}

// splitList splits at the commas outside quoted strings. It answers false for an unclosed string.
func splitList(v string) ([]string, bool) {
	var members []string
	start, quoted := 0, false
	for i := 0; i < len(v); i++ {
		switch c := v[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			members = append(members, strings.TrimSpace(v[start:i]))
			start = i + 1
		}
	}
	return append(members, strings.TrimSpace(v[start:])), !quoted
}

// memberName gives the token or string that a list member begins with.
func memberName(m string) string {
	if s, ok := strings.CutPrefix(m, `"`); ok {
		name, _, _ := strings.Cut(s, `"`)
		return name
	}
	if end := strings.IndexAny(m, "; \t"); end >= 0 {
		return m[:end]
	}
	return m
}

func containsFold(s, sub string) bool {
	for i := 0; i+len(sub) <= len(s); i++ {
		if strings.EqualFold(s[i:i+len(sub)], sub) {
			return true
		}
	}
	return false
}
