package rig

// Rules is the robots.txt of most sites of these tests.
const Rules = "User-agent: *\nDisallow: /private\nDisallow: /deep/*.pdf$\n"

// The pages that tell an origin's state: one that the rules disallow, and one that no rule concerns.
const (
	PrivatePage = "/private/page"
	OpenPage    = "/open"
)
