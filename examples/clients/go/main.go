// Command crawl crawls sites with net/http: crawl URL...
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// Proxy and certificates come from the environment.
var client = &http.Client{Timeout: 2 * time.Minute} // longer than the gateway holds a request

func get(url string) (*http.Response, []byte, error) {
	for {
		req, err := http.NewRequest(http.MethodGet, url, http.NoBody)
		if err != nil {
			return nil, nil, err
		}
		req.Header.Set("User-Agent", "examplebot/1.0 (+https://bot.example/)") // the name in the gateway's configuration
		resp, err := client.Do(req)
		if err != nil {
			return nil, nil, err
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close() // read to its end
		seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
		if err != nil || resp.StatusCode != 429 && resp.StatusCode != 503 || seconds == 0 {
			return resp, body, err
		}
		time.Sleep(time.Duration(seconds) * time.Second)
	}
}

var link = regexp.MustCompile(`<a href="([^"]*)"`)

func main() {
	pages := slices.Clone(os.Args[1:])
	for i := 0; i < len(pages); i++ {
		resp, body, err := get(pages[i])
		if err != nil {
			fmt.Println(pages[i], err)
			continue
		}
		fmt.Println(resp.StatusCode, resp.Header.Get("Crawlgate-Decision"), pages[i])
		for _, m := range link.FindAllSubmatch(body, -1) {
			if u, err := resp.Request.URL.Parse(string(m[1])); err == nil && !slices.Contains(pages, u.String()) {
				pages = append(pages, u.String())
			}
		}
	}
}
