// Command sitemaps prints the sitemaps that github.com/temoto/robotstxt, the robots.txt parser of
// colly, finds in files: a JSON array in a line for each argument.
package main

import (
	"encoding/json"
	"log"
	"os"

	"github.com/temoto/robotstxt"
)

func main() {
	out := json.NewEncoder(os.Stdout)
	for _, name := range os.Args[1:] {
		text, err := os.ReadFile(name)
		if err != nil {
			log.Fatal(err)
		}
		sitemaps := []string{}
		if rules, err := robotstxt.FromBytes(text); err == nil {
			sitemaps = append(sitemaps, rules.Sitemaps...)
		}
		if err := out.Encode(sitemaps); err != nil {
			log.Fatal(err)
		}
	}
}
