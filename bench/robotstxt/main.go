// Command robotstxt compares the parser and matcher with github.com/temoto/robotstxt on the
// robots.txt files of a folder. Both run in turns in one process, so that both get the same load of
// the machine. The best round of each file and question counts. It prints a table in Markdown: all
// files, then the files by size, with a tenth of them per line.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
)

func main() {
	dir := flag.String("corpus", os.Getenv("CRAWLGATE_CORPUS"), "folder of *.txt `files`")
	rounds := flag.Int("rounds", 15, "number of `rounds`")
	flag.Parse()
	files, err := load(*dir)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(header)
	fmt.Println(measure("all", files, *rounds))
	for i := range 10 {
		part := files[i*len(files)/10 : (i+1)*len(files)/10]
		fmt.Println(measure(fmt.Sprintf("%d. tenth", i+1), part, *rounds))
	}
}
