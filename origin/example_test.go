package origin_test

import (
	"fmt"

	"github.com/crawlgate/crawlgate/origin"
)

// A URL gives the origin, to which a robots.txt applies, and the target that rules are matched
// against.
func ExampleParseTarget() {
	target, err := origin.ParseTarget("HTTPS://Example.COM:443/a%2Fb?c=d#e")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(target.Origin)
	fmt.Println(target.Path)
	fmt.Println(target.Origin.RobotsURL())
	// Output:
	// https://example.com
	// /a%2Fb?c=d
	// https://example.com/robots.txt
}

// A host that has no canonical spelling is refused.
func ExampleParse() {
	_, err := origin.Parse("http://127.1/")
	fmt.Println(err)
	// Output: origin: address "127.1" is not four decimal numbers without leading zeros
}

// Servers may resolve a path to other paths before they serve it.
func ExampleResolve() {
	forms, ok := origin.Resolve("/public/../private/x")
	fmt.Println(forms, ok)
	// Output: [/private/x] true
}
