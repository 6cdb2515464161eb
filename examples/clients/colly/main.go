// Command colly crawls sites with Colly: colly URL...
package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/gocolly/colly/v2"
)

func main() {
	// Proxy and certificates come from the environment. The gateway's configuration has the name.
	c := colly.NewCollector(colly.UserAgent("examplebot/1.0 (+https://bot.example/)"))
	c.SetRequestTimeout(2 * time.Minute) // longer than the gateway holds a request; 10 s by default
	c.OnHTML("a[href]", func(e *colly.HTMLElement) {
		_ = e.Request.Visit(e.Attr("href")) // errors go to OnError, but for pages that were visited before
	})
	c.OnScraped(func(r *colly.Response) { fmt.Println(r.StatusCode, r.Headers.Get("Crawlgate-Decision"), r.Request.URL) })
	c.OnError(func(r *colly.Response, err error) {
		fmt.Println(r.StatusCode, r.Request.URL, err)
		seconds, _ := strconv.Atoi(r.Headers.Get("Retry-After"))
		if r.StatusCode != 429 && r.StatusCode != 503 || seconds == 0 {
			return
		}
		time.Sleep(time.Duration(seconds) * time.Second)
		_ = r.Request.Retry() // comes here again if it fails
	})
	for _, url := range os.Args[1:] {
		_ = c.Visit(url)
	}
}
