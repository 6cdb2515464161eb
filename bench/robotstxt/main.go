// Command robotstxt measures the parser and matcher beside github.com/temoto/robotstxt, over the robots.txt files of a
// folder, in one run and in turns, so that both meet the same load of the machine. Of
// every file and question the best round counts. It prints a table in Markdown: all files, then the files by size, a tenth
// of their number a line.
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
