package adminapi

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/crawlgate/crawlgate/origin"
)

// ParseOrigin reads the URL of a site. A page's URL is an error, lest a purge of a page forget the
// site.
func ParseOrigin(text string) (origin.Origin, error) {
	if text == "" {
		return origin.Origin{}, errors.New("origin is missing: want a URL such as https://example.com")
	}
	o, err := origin.Parse(text)
	if err != nil {
		return o, fmt.Errorf("origin: %w", err)
	}
	if u, err := url.Parse(text); err != nil || u.RawQuery != "" || u.Fragment != "" ||
		u.Path != "" && u.Path != "/" && u.Path != "/robots.txt" {
		return o, fmt.Errorf("origin %.200q: want scheme, host and port alone, as in %s", text, o)
	}
	return o, nil
}
