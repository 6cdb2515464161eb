package origin

import (
	"errors"
	"strconv"
)

// maxErrorValue bounds the bytes of foreign text that an error carries.
const maxErrorValue = 80

// refuse returns an error that names the part of a URL or authority that is not canonical, and the
// reason. value is the offending text, or empty. It is cut and escaped to printable ASCII, so that
// it can be logged and shown, and must not contain credentials.
func refuse(part, value, reason string) error {
	if len(value) > maxErrorValue {
		quoted := strconv.QuoteToASCII(value[:maxErrorValue])
		part += " " + quoted[:len(quoted)-1] + `..."`
	} else if value != "" {
		part += " " + strconv.QuoteToASCII(value)
	}
	return errors.New("origin: " + part + " " + reason)
}
