package link

import (
	"strings"
	"testing"
)

// TestCheckURL checks which texts are refused before they are dialed, and that no error contains a
// password.
func TestCheckURL(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"redis://user:secret@redis.example:6379/0": "",
		"rediss://redis.example":                   "",
		"unix:///run/redis.sock":                   "",
		"{env.REDIS}":                              "",
		"http://user:secret@localhost":             `redis url has scheme "http": want redis, rediss or unix`,
		"redis.example:6379":                       `redis url has scheme "redis.example": want redis, rediss or unix`,
		"":                                         `redis url has scheme "": want redis, rediss or unix`,
		"redis://user:secret@:x":                   "redis url cannot be parsed; want one such as redis://redis.example:6379",
		"redis://user:secret@redis.example:65536":  "redis url has port 65536: want a number from 1 to 65535",
		"redis://user:secret@redis.example:0":      "redis url has port 0: want a number from 1 to 65535",
		"redis://user:secret@/0":                   "redis url names no host",
	} {
		err := CheckURL(raw)
		if err == nil && want == "" {
			continue
		}
		if err == nil || err.Error() != want || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: got %v, want %s", raw, err, want)
		}
	}
}
