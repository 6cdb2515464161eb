package cli_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/crawlgate/crawlgate/cli"
)

// BenchmarkQuestions answers 50,000 questions per iteration, in turn about the files of the folder
// CRAWLGATE_CORPUS or those of testdata, once with the files on disk and once with each file in its
// question.
func BenchmarkQuestions(b *testing.B) {
	const questions = 50_000
	dir := os.Getenv("CRAWLGATE_CORPUS")
	if dir == "" {
		dir = "../robotstxt/testdata/wild"
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(files) == 0 {
		b.Fatalf("no files in %s: %v", dir, err)
	}
	var onDisk, inline bytes.Buffer
	for i := range questions {
		path := files[i%len(files)]
		data, err := os.ReadFile(path)
		if err != nil {
			b.Fatal(err)
		}
		end := fmt.Sprintf(`"agents":["Googlebot-Image","Googlebot"],"url":"https://example.com/path/%d?q=%d"}`+"\n", i, i)
		fmt.Fprintf(&onDisk, `{"id":%d,"robots_file":%q,%s`, i, path, end)
		fmt.Fprintf(&inline, `{"id":%d,"robots":%q,%s`, i, base64.StdEncoding.EncodeToString(data), end)
	}
	for name, in := range map[string]*bytes.Buffer{"files": &onDisk, "inline": &inline} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(in.Len()))
			for b.Loop() {
				failed, err := cli.Answer(context.Background(), bytes.NewReader(in.Bytes()), io.Discard, cli.MaxQuestion, cli.MaxParsed)
				if failed || err != nil {
					b.Fatalf("Answer = %v, %v", failed, err)
				}
			}
		})
	}
}
