package proxy

import (
	"reflect"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
)

// placeholderPrefix begins the names of the placeholders that the gateway sets. docs/caddyfile.md
// lists them.
const placeholderPrefix = "http.robots."

// placeholderMessage is the one that is no field of the log: the refusal in a line.
const placeholderMessage = "message"

// placeholderFields are the fields of the log that are placeholders too.
var placeholderFields = []string{
	"decision", "reason", "mode", "would_deny", "agent", "origin", "robots_url", "state", "group", "rule", "line", "form", "sha256",
}

// placeholders lets other handlers, error routes and log_append show what was decided, from now on
// and as it then stands.
func (x *exchange) placeholders() {
	if repl, ok := x.r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		repl.Map(x.placeholder)
	}
}

func (x *exchange) placeholder(key string) (any, bool) {
	name, ours := strings.CutPrefix(key, placeholderPrefix)
	if !ours || x.own {
		return nil, false
	}
	if name == placeholderMessage {
		return x.message, true
	}
	if !slices.Contains(placeholderFields, name) {
		return nil, false
	}
	rec := x.decision.Record()
	value, ok := rec.Field(name)
	switch value.Kind() {
	case reflect.Bool:
		return value.Bool(), ok
	case reflect.Int:
		return int(value.Int()), ok
	default:
		return value.String(), ok
	}
}
