package origin

import (
	"fmt"
	"strconv"
)

// The parts that an [Error] can blame.
const (
	PartURL      = "url"
	PartScheme   = "scheme"
	PartUserinfo = "userinfo"
	PartHost     = "host"
	PartAddress  = "address"
	PartPort     = "port"
	PartPath     = "path"
)

// maxErrorValue bounds the bytes of foreign text that an Error carries.
const maxErrorValue = 80

// Error names the part of a URL or authority that is not canonical, and the reason.
type Error struct {
	// Part is one of the Part constants.
	Part string
	// Value is the offending text, cut and escaped to printable ASCII, so that it can be logged and
	// shown. It never contains credentials.
	Value string
	// Reason describes the fault of Value in a few words.
	Reason string
}

func (e *Error) Error() string {
	if e.Value == "" {
		return "origin: " + e.Part + " " + e.Reason
	}
	return fmt.Sprintf("origin: %s \"%s\" %s", e.Part, e.Value, e.Reason)
}

func refuse(part, value, reason string) error {
	return &Error{Part: part, Value: printable(value), Reason: reason}
}

// printable shortens s and escapes everything but printable ASCII.
func printable(s string) string {
	ellipsis := ""
	if len(s) > maxErrorValue {
		s, ellipsis = s[:maxErrorValue], "..."
	}
	quoted := strconv.QuoteToASCII(s)
	return quoted[1:len(quoted)-1] + ellipsis
}
