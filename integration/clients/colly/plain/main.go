// Command plain crawls a site like the first example of Colly's documentation.
package main

import (
	"fmt"
	"os"

	"github.com/gocolly/colly/v2"
)

func main() {
	c := colly.NewCollector()
	c.OnHTML("a[href]", func(e *colly.HTMLElement) { _ = e.Request.Visit(e.Attr("href")) })
	c.OnRequest(func(r *colly.Request) { fmt.Println("Visiting", r.URL) })
	if err := c.Visit(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
