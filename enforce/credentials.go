package enforce

import (
	"encoding/base64"
	"strings"
)

// maxAuthorization bounds the octets of a Proxy-Authorization field that is read.
const maxAuthorization = 4096

// basicCredentials reads the value of a Proxy-Authorization field (RFC 7617 section 2).
// It is strict: what is not Basic, not base64, without colon, or with control octets,
// is no credential.
func basicCredentials(field string) (user, password string, ok bool) {
	scheme, encoded, found := strings.Cut(field, " ")
	if !found || len(field) > maxAuthorization || !strings.EqualFold(scheme, "Basic") {
		return "", "", false
	}
	decoded, err := base64.StdEncoding.Strict().DecodeString(strings.Trim(encoded, " "))
	if err != nil || hasControl(string(decoded)) {
		return "", "", false
	}
	user, password, ok = strings.Cut(string(decoded), ":")
	return user, password, ok && user != ""
}

// hasControl reports whether s has an ASCII control octet.
func hasControl(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == 0x7f {
			return true
		}
	}
	return false
}
