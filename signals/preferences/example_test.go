package preferences_test

import (
	"fmt"
	"net/http"

	"github.com/crawlgate/crawlgate/robotstxt"
	"github.com/crawlgate/crawlgate/signals/preferences"
)

// The preferences of a robots.txt and of an answer are joined. The strictest one decides.
func Example() {
	rules := robotstxt.Parse([]byte(`User-agent: *
Content-Signal: search=yes, ai-train=no
Allow: /
`))
	agent := robotstxt.Agent{Tokens: []string{"ExampleBot"}}
	groups := preferences.AppendGroups(nil, rules, agent, nil)
	file := preferences.Robots(rules, groups, "/page")
	answer := preferences.Fields(http.Header{"Content-Usage": {"search=n"}}, 0)

	all := preferences.Join(file, answer)
	for _, s := range all.Decided() {
		fmt.Println(s.Purpose, s.Value, "from", s.From, "line", s.Line)
	}
	fmt.Println("archive:", all.Value("archive"))
	// Output:
	// search n from content_usage line 0
	// train-ai n from robots_content_signal line 2
	// archive: unknown
}
