package enforce

import (
	"encoding/base64"
	"strings"
	"testing"
)

func TestRFC7617_2_BasicCredentials(t *testing.T) {
	t.Parallel()
	encode := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }
	for _, tt := range []struct {
		field, user, password string
		ok                    bool
	}{
		{"Basic " + encode("Aladdin:open sesame"), "Aladdin", "open sesame", true},
		{"bAsIc   " + encode("u:p"), "u", "p", true},
		{"Basic " + encode("u:"), "u", "", true},
		{"Basic " + encode("u:p:q"), "u", "p:q", true},
		{"Basic " + encode("jürgen:pässword"), "jürgen", "pässword", true},
		{"Basic " + encode(":p"), "", "", false},
		{"Basic " + encode("u"), "", "", false},
		{"Basic " + encode("u:p\n"), "", "", false},
		{"Basic " + encode("u\x00:p"), "", "", false},
		{"Basic " + strings.TrimRight(encode("u:p5"), "="), "", "", false},
		{"Basic " + encode("u:p") + "!", "", "", false},
		{"Basic " + encode("u:p") + " " + encode("v:q"), "", "", false},
		{"Basic", "", "", false},
		{"Basic ", "", "", false},
		{"", "", "", false},
		{encode("u:p"), "", "", false},
		{"Bearer " + encode("u:p"), "", "", false},
		{"Basic " + encode("u:"+strings.Repeat("p", maxAuthorization)), "", "", false},
	} {
		user, password, ok := basicCredentials(tt.field)
		if ok != tt.ok || ok && (user != tt.user || password != tt.password) {
			t.Errorf("%.60q: got %q, %q, %t; want %q, %q, %t", tt.field, user, password, ok, tt.user, tt.password, tt.ok)
		}
	}
}
