module github.com/crawlgate/crawlgate/examples/clients/go

go 1.26
