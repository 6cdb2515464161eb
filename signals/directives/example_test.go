package directives_test

import (
	"fmt"

	"github.com/crawlgate/crawlgate/signals/directives"
)

// The fields of an answer and the meta tags of its page are combined.
func Example() {
	tokens := []string{"ExampleBot"}
	field := directives.Header([]string{"noarchive, otherbot: noindex"}, tokens)
	tags := directives.Meta([]directives.Named{{Name: "robots", Content: "nofollow, max-snippet:50"}}, tokens)
	all := field.Join(tags)
	fmt.Println(all.Names())
	fmt.Println(all.Flags&directives.NoArchive != 0, all.Flags&directives.NoIndex != 0)
	// Output:
	// [nofollow noarchive max-snippet=50]
	// true false
}
