module github.com/crawlgate/crawlgate/bench

go 1.26.8

require (
	github.com/crawlgate/crawlgate v0.0.0
	github.com/temoto/robotstxt v1.1.2
)

replace github.com/crawlgate/crawlgate => ../..
