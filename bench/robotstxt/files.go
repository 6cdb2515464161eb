package main

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// targets is the number of questions per file.
const targets = 20

type file struct {
	data    []byte
	targets []string
}

// load reads the files of a folder in the order of their sizes, and makes questions for each.
func load(dir string) ([]file, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(paths) == 0 {
		return nil, fmt.Errorf("finding files in %q: none: %w", dir, err)
	}
	rnd := rand.New(rand.NewPCG(9309, 1))
	files := make([]file, 0, len(paths))
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading corpus: %w", err)
		}
		files = append(files, file{data, ask(rnd, data)})
	}
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(len(a.data), len(b.data)) })
	return files, nil
}

// ask makes half of the targets from the rules of a file, and the others from words that are common
// in URLs.
func ask(rnd *rand.Rand, data []byte) []string {
	var paths []string
	for line := range bytes.FieldsFuncSeq(data, func(r rune) bool { return r == '\n' || r == '\r' }) {
		key, value, _ := strings.Cut(string(line), ":")
		value, _, _ = strings.Cut(value, "#")
		if value = strings.TrimSpace(value); strings.HasSuffix(strings.ToLower(key), "allow") && strings.HasPrefix(value, "/") && len(value) < 200 {
			paths = append(paths, value)
		}
	}
	words := []string{"news", "products", "2024", "index.html", "search", "images", "about-us", "article-12345", "en", "p"}
	all := make([]string, targets)
	for i := range all {
		if i%2 == 0 && len(paths) > 0 {
			path := paths[rnd.IntN(len(paths))]
			all[i] = strings.TrimSuffix(strings.ReplaceAll(path, "*", words[rnd.IntN(len(words))]), "$") + words[rnd.IntN(len(words))]
			continue
		}
		for range 1 + rnd.IntN(5) {
			all[i] += "/" + words[rnd.IntN(len(words))]
		}
		if rnd.IntN(3) == 0 {
			all[i] += fmt.Sprintf("?page=%d&sort=asc", rnd.IntN(100))
		}
	}
	return all
}
