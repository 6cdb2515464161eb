package robotstxt_test

import (
	"os"
	"path/filepath"
	"testing"
)

// file is one robots.txt of the corpus.
type file struct {
	name string
	data []byte
}

func wholeCorpus() bool { return os.Getenv("CRAWLGATE_CORPUS") != "" }

// corpus reads the real files of the folder CRAWLGATE_CORPUS, or without it those of testdata.
func corpus(tb testing.TB) []file {
	tb.Helper()
	dir := "testdata/wild"
	if wholeCorpus() {
		dir = os.Getenv("CRAWLGATE_CORPUS")
	}
	paths, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(paths) == 0 {
		tb.Fatalf("no files in %s: %v", dir, err)
	}
	files := make([]file, len(paths))
	for i, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			tb.Fatal(err)
		}
		files[i] = file{name: filepath.Base(path), data: data}
	}
	return files
}
