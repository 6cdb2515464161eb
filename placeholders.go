package crawlgate

import (
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/crawlgate/crawlgate/enforce"
)

// placeholderPrefix begins the names of the placeholders that the gateway sets. docs/caddyfile.md lists them.
const placeholderPrefix = "http.robots."

// placeholderMessage is the one that is no field of the log: the refusal in a line.
const placeholderMessage = "message"

// placeholders lets other handlers, error routes and log_append show what was decided, from now on and as it then stands.
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
	d := &x.decision
	switch name {
	case enforce.FieldDecision:
		return d.Outcome(), true
	case enforce.FieldReason:
		return string(d.Reason), true
	case enforce.FieldMode:
		return d.Mode.String(), true
	case enforce.FieldWouldDeny:
		return d.WouldDeny, true
	case placeholderMessage:
		return x.message, true
	}
	switch rec := d.Record(); name { // which cuts and escapes what others have written
	case enforce.FieldAgent:
		return rec.Agent, true
	case enforce.FieldOrigin:
		return rec.Origin, true
	case enforce.FieldRobotsURL:
		return rec.RobotsURL, true
	case enforce.FieldState:
		return rec.State, true
	case enforce.FieldGroup:
		return rec.Group, true
	case enforce.FieldRule:
		return rec.Rule, true
	case enforce.FieldLine:
		return rec.Line, true
	case enforce.FieldForm:
		return string(rec.Form), true
	case enforce.FieldSHA256:
		return rec.SHA256, true
	}
	return nil, false
}
