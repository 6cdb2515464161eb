package fetch

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
)

// encode applies one coding. "raw" is deflate without its zlib wrapper.
func encode(tb testing.TB, coding string, text []byte) []byte {
	tb.Helper()
	var buf bytes.Buffer
	var w io.WriteCloser
	var err error
	switch coding {
	case "gzip", "x-gzip":
		w = gzip.NewWriter(&buf)
	case "br":
		w = brotli.NewWriter(&buf)
	case "zstd":
		w, err = zstd.NewWriter(&buf)
	case "deflate":
		w = zlib.NewWriter(&buf)
	case "raw":
		w, err = flate.NewWriter(&buf, flate.BestCompression)
	default:
		tb.Fatalf("unknown coding %q", coding)
	}
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := w.Write(text); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

// headerOf returns the Content-Encoding of a coding of encode.
func headerOf(coding string) string {
	if coding == "raw" {
		coding = "deflate"
	}
	return "Content-Encoding: " + coding
}

var codings = []string{"gzip", "x-gzip", "br", "zstd", "deflate", "raw"}

// noise returns n bytes of text that no coding makes much smaller.
func noise(n int) []byte {
	b := make([]byte, n)
	state := uint32(1)
	for i := range b {
		state = state*1664525 + 1013904223
		b[i] = "\n !#$*./0123456789:ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrs"[state>>26]
	}
	return b
}

// kept returns the part of a text that a record keeps: the first 500 KiB, without a last line that
// is cut.
func kept(text []byte) []byte {
	if len(text) > MinSize {
		text = text[:MinSize]
		if end := bytes.LastIndexAny(text, "\r\n"); end >= 0 {
			text = text[:end+1]
		}
	}
	return text
}

func TestExt_Codings(t *testing.T) {
	t.Parallel()
	texts := map[string][]byte{
		"empty":           {},
		"one byte":        []byte("x"),
		"rules":           []byte(rules),
		"noise":           noise(100_000),
		"exactly 500 KiB": bytes.Repeat([]byte("0123456789"), MinSize/10),
		"500 KiB noise":   noise(MinSize),
		"one more":        noise(MinSize + 1),
		"much more":       bytes.Repeat([]byte("Disallow: /x\n"), 1<<20),
	}
	for _, coding := range codings {
		for name, text := range texts {
			t.Run(coding+"/"+name, func(t *testing.T) {
				t.Parallel()
				out, _ := fetchScript(t, Config{}, map[string]string{"*": answer(200, string(encode(t, coding, text)), headerOf(coding))})
				want{KindRules, ""}.check(t, out)
				if expect := kept(text); !bytes.Equal(out.Body, expect) || out.Truncated != (len(text) > MinSize) {
					t.Errorf("body of %d bytes, truncated %v; want %d bytes", len(out.Body), out.Truncated, len(expect))
				}
			})
		}
	}
}

func TestExt_CodingHeaders(t *testing.T) {
	t.Parallel()
	zipped := string(encode(t, "gzip", []byte(rules)))
	twice := string(encode(t, "br", []byte(zipped)))
	four := []byte(rules)
	for range 4 {
		four = encode(t, "gzip", four)
	}
	tests := []struct {
		name   string
		header []string
		body   string
		want   want
	}{
		{"none", nil, rules, want{KindRules, ""}},
		{"identity", []string{"Content-Encoding: identity"}, rules, want{KindRules, ""}},
		{"empty field", []string{"Content-Encoding: "}, rules, want{KindRules, ""}},
		{"upper case", []string{"Content-Encoding: GZIP"}, zipped, want{KindRules, ""}},
		{"identity and gzip", []string{"Content-Encoding: identity, gzip"}, zipped, want{KindRules, ""}},
		{"stacked", []string{"Content-Encoding: gzip, br"}, twice, want{KindRules, ""}},
		{"stacked in two fields", []string{"Content-Encoding: gzip", "Content-Encoding: br"}, twice, want{KindRules, ""}},
		{"stacked in the wrong order", []string{"Content-Encoding: br, gzip"}, twice, want{KindUnreachable, CauseEncoding}},
		{"four deep", []string{"Content-Encoding: gzip, gzip, gzip, gzip"}, string(four), want{KindUnreachable, CauseEncoding}},
		{"unknown", []string{"Content-Encoding: compress"}, rules, want{KindUnreachable, CauseEncoding}},
		{"charset as coding", []string{"Content-Encoding: utf-8"}, rules, want{KindRules, ""}},
		{"no coding and a known one", []string{"Content-Encoding: gzip, none"}, zipped, want{KindRules, ""}},
		{"unknown and known", []string{"Content-Encoding: gzip, aes128gcm"}, zipped, want{KindUnreachable, CauseEncoding}},
		{"lie", []string{"Content-Encoding: gzip"}, rules, want{KindUnreachable, CauseEncoding}},
		{"wrong coding", []string{"Content-Encoding: br"}, zipped, want{KindUnreachable, CauseEncoding}},
		{"not said", nil, zipped, want{KindRules, ""}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out, _ := fetchScript(t, Config{}, map[string]string{"*": answer(200, tt.body, tt.header...)})
			tt.want.check(t, out)
			if out.Kind == KindRules && string(out.Body) != rules {
				t.Errorf("body %q, want the rules", out.Body)
			}
		})
	}
}

// TestExt_BrokenCodings checks that cut or damaged coded data ends in "unreachable" or in the text
// itself, never in another text.
func TestExt_BrokenCodings(t *testing.T) {
	t.Parallel()
	text := []byte(strings.Repeat("User-agent: *\nDisallow: /secret\nAllow: /secret/but\n", 20))
	for _, coding := range codings {
		t.Run(coding, func(t *testing.T) {
			t.Parallel()
			whole := encode(t, coding, text)
			get := func(body []byte) Outcome {
				out, _ := fetchScript(t, Config{}, map[string]string{"*": answer(200, string(body), headerOf(coding))})
				return out
			}
			for n := 1; n < len(whole); n++ {
				want{KindUnreachable, CauseEncoding}.check(t, get(whole[:n]))
			}
			for _, tail := range []string{"\x00", "x", "<!-- cached -->", string(whole[:5])} {
				w := want{KindUnreachable, CauseEncoding}
				if strings.HasSuffix(coding, "gzip") && tail[0] != whole[0] {
					w = want{KindRules, ""} // the checksum shows that the text is complete
				}
				out := get(append(slices.Clip(whole), tail...))
				w.check(t, out)
				if out.Kind == KindRules && !bytes.Equal(out.Body, text) {
					t.Errorf("tail %q: body %q", tail, out.Body)
				}
			}
		})
	}
}

// TestExt_CodedAndCut checks that the transfer's failure is reported, not the decoder's that
// follows.
func TestExt_CodedAndCut(t *testing.T) {
	t.Parallel()
	cut := func(text []byte, at int) string {
		raw := answer(200, string(encode(t, "gzip", text)), "Content-Encoding: gzip")
		return raw[:len(raw)-at]
	}
	t.Run("short", func(t *testing.T) {
		t.Parallel()
		out, _ := fetchScript(t, Config{}, map[string]string{"*": cut([]byte(rules), 3)})
		want{KindUnreachable, CauseTruncated}.check(t, out)
	})
	t.Run("behind the limit", func(t *testing.T) { // RFC 9309 2.5: the limit was reached before
		t.Parallel()
		text := noise(MinSize + 10_000)
		out, _ := fetchScript(t, Config{}, map[string]string{"*": cut(text, 100)})
		want{KindRules, ""}.check(t, out)
		if !out.Truncated || !bytes.Equal(out.Body, kept(text)) {
			t.Errorf("body of %d, truncated is %v", len(out.Body), out.Truncated)
		}
	})
}

// TestExt_EmptyCodedBody checks that an empty body with a coding, which some servers send, is an
// empty file if the protocol shows that nothing is missing.
func TestExt_EmptyCodedBody(t *testing.T) {
	t.Parallel()
	const coded = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n"
	for raw, w := range map[string]want{
		coded + "Content-Length: 0\r\n\r\n":                       {KindRules, ""},
		coded + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n":     {KindRules, ""},
		coded + "Connection: close\r\n\r\n":                       {KindUnreachable, CauseEncoding},
		coded + "Content-Length: 10\r\n\r\n":                      {KindUnreachable, CauseTruncated},
		"HTTP/1.1 204 No Content\r\nContent-Encoding: br\r\n\r\n": {KindRules, ""},
	} {
		out, _ := fetchScript(t, Config{}, map[string]string{"*": raw})
		w.check(t, out)
		if len(out.Body) != 0 {
			t.Errorf("body %q", out.Body)
		}
	}
}

// TestExt_ConcatenatedMembers checks several members in one body, as RFC 1952 2.2 and RFC 8878 3
// permit.
func TestExt_ConcatenatedMembers(t *testing.T) {
	t.Parallel()
	for _, coding := range []string{"gzip", "zstd"} {
		half := encode(t, coding, []byte(rules))
		out, _ := fetchScript(t, Config{}, map[string]string{"*": answer(200, string(half)+string(half), headerOf(coding))})
		want{KindRules, ""}.check(t, out)
		if string(out.Body) != rules+rules {
			t.Errorf("%s: body %q", coding, out.Body)
		}
	}
}

// bomb returns n times one character in the given codings, which may be nested.
func bomb(tb testing.TB, n int, codings ...string) []byte {
	tb.Helper()
	data := bytes.Repeat([]byte("#"), n)
	for _, coding := range codings {
		data = encode(tb, coding, data)
	}
	return data
}

// emptyMembers returns size bytes of gzip members without text.
func emptyMembers(tb testing.TB, size int) []byte {
	tb.Helper()
	member := encode(tb, "gzip", nil)
	all := bytes.Repeat(member, size/len(member)-2)
	var last bytes.Buffer
	w := gzip.NewWriter(&last)
	w.Extra = make([]byte, size-len(all)-len(member)-2) // 2 bytes are its length
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return append(all, last.Bytes()...)
}

// TestExt_Bombs checks that a file that grows on decoding is cut at the limit like any other, and
// that layers that grow and shrink again are rejected.
func TestExt_Bombs(t *testing.T) {
	t.Parallel()
	swallowed := encode(t, "gzip", bytes.Repeat(encode(t, "gzip", nil), 200_000))
	tests := []struct {
		name, header string
		body         []byte
		want         want
	}{
		{"gzip", "gzip", bomb(t, 16<<20, "gzip"), want{KindRules, ""}},
		{"br", "br", bomb(t, 16<<20, "br"), want{KindRules, ""}},
		{"zstd", "zstd", bomb(t, 16<<20, "zstd"), want{KindRules, ""}},
		{"deflate", "deflate", bomb(t, 16<<20, "deflate"), want{KindRules, ""}},
		{"stacked", "gzip, gzip", bomb(t, 16<<20, "gzip", "gzip"), want{KindRules, ""}},
		{"layer that vanishes", "gzip, gzip", swallowed, want{KindUnreachable, CauseEncoding}},
		{"empty members without end", "gzip", bytes.Repeat(encode(t, "gzip", nil), 100_000), want{KindUnreachable, CauseEncoding}},
		{"no member without end", "gzip", append(encode(t, "gzip", []byte(rules)), make([]byte, 700_000)...), want{KindUnreachable, CauseEncoding}},
		{"members cut between two", "gzip", append(emptyMembers(t, codedLimit(MinSize)), encode(t, "gzip", []byte(rules))...), want{KindUnreachable, CauseEncoding}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			out, _ := fetchScript(t, Config{}, map[string]string{"*": answer(200, string(tt.body), "Content-Encoding: "+tt.header)})
			tt.want.check(t, out)
			if out.Kind == KindRules && (!out.Truncated || len(out.Body) != MinSize) {
				t.Errorf("body of %d, truncated is %v", len(out.Body), out.Truncated)
			}
		})
	}
}

// TestExt_DecoderMemory checks the memory of one decoder for any window. It is not parallel,
// because it measures the whole process.
func TestExt_DecoderMemory(t *testing.T) {
	for name, data := range map[string]struct {
		coding string
		body   []byte
	}{
		"gzip bomb":           {"gzip", bomb(t, 32<<20, "gzip")},
		"brotli 16 MiB":       {"br", brotliWindow(t, 24)},
		"zstd 8 MiB window":   {"zstd", zstdWindow(t, 8<<20)},
		"zstd large window":   {"zstd", zstdWindow(t, 16<<20)},
		"zstd single segment": {"zstd", zstdSegment(t, 64<<20)},
		"stacked gzip bombs":  {"gzip", bomb(t, 32<<20, "gzip", "gzip")},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, _, _ = decode(data.body, []string{data.coding}, MinSize)
			runtime.ReadMemStats(&after)
			if used := after.TotalAlloc - before.TotalAlloc; used > 32<<20 {
				t.Errorf("decoding allocated %d MiB", used>>20)
			}
		})
	}
}

// zstdWindow returns a frame that needs a window of the given size.
func zstdWindow(tb testing.TB, size int) []byte {
	tb.Helper()
	var buf bytes.Buffer
	w, err := zstd.NewWriter(&buf, zstd.WithWindowSize(size), zstd.WithSingleSegment(false))
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := io.CopyN(w, zeroes{}, int64(size)+1<<20); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

// zstdSegment returns a frame whose window is all of its n bytes.
func zstdSegment(tb testing.TB, n int) []byte {
	tb.Helper()
	w, err := zstd.NewWriter(nil, zstd.WithSingleSegment(true))
	if err != nil {
		tb.Fatal(err)
	}
	return w.EncodeAll(make([]byte, n), nil)
}

// brotliWindow returns a stream with a window of 1<<lgWin bytes, all of them used.
func brotliWindow(tb testing.TB, lgWin int) []byte {
	tb.Helper()
	var buf bytes.Buffer
	w := brotli.NewWriterOptions(&buf, brotli.WriterOptions{Quality: 5, LGWin: lgWin})
	if _, err := io.CopyN(w, zeroes{}, 5<<lgWin/4); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestExt_ZstdWindow checks RFC 9659 section 3, which limits the window of the content coding to 8
// MiB.
func TestExt_ZstdWindow(t *testing.T) {
	t.Parallel()
	if _, more, err := decode(zstdWindow(t, 8<<20), []string{"zstd"}, MinSize); err != nil || !more {
		t.Errorf("window of 8 MiB: more %v, error %v", more, err)
	}
	if _, _, err := decode(zstdWindow(t, 16<<20), []string{"zstd"}, MinSize); err == nil {
		t.Error("window of 16 MiB was accepted")
	}
	if _, _, err := decode(zstdSegment(t, 16<<20), []string{"zstd"}, MinSize); err == nil {
		t.Error("segment of 16 MiB was accepted")
	}
}

// FuzzDecode checks that decoding stays within its bounds for any input.
func FuzzDecode(f *testing.F) {
	for i, coding := range codings {
		f.Add(encode(f, coding, []byte(rules)), uint8(i))
		f.Add(bomb(f, 1<<20, coding), uint8(i))
	}
	f.Add(encode(f, "gzip", encode(f, "br", []byte(rules))), uint8(6))
	f.Fuzz(func(t *testing.T, data []byte, which uint8) {
		stacks := [][]string{{"gzip"}, {"x-gzip"}, {"br"}, {"zstd"}, {"deflate"}, {"deflate"}, {"br", "gzip"}, {"zstd", "deflate", "gzip"}}
		const limit = 10_000
		text, more, err := decode(data, stacks[int(which)%len(stacks)], limit)
		if len(text) > limit || (more && len(text) != limit) || (err != nil && (text != nil || more)) {
			t.Errorf("%d bytes, more %v, error %v", len(text), more, err)
		}
	})
}

// A coding must not expand without end into another one that ignores what follows its own end.
func TestExt_BoundedLayers(t *testing.T) {
	t.Parallel()
	const limit = 10_000
	inner := encode(t, "gzip", []byte(rules))
	for length, tooLong := range map[int]bool{codedLimit(limit) - 1: false, codedLimit(limit): true, 100 * codedLimit(limit): true} {
		data := encode(t, "gzip", append(slices.Clone(inner), make([]byte, length-len(inner))...))
		text, _, err := decode(data, []string{"gzip", "gzip"}, limit)
		if (err != nil) != tooLong || !tooLong && string(text) != rules {
			t.Errorf("%d bytes: got %q, error %v", length, text, err)
		}
	}
}

// TestExt_CodingsThatAreNotRead checks registered codings that are not supported, and those of
// mail, whose data is text.
func TestExt_CodingsThatAreNotRead(t *testing.T) {
	t.Parallel()
	for _, coding := range []string{
		"aes128gcm", "compress", "x-compress", "dcb", "dcz", "exi", "pack200-gzip", "base64", "quoted-printable", "uuencode", "x-uuencode", "x-uue", "hex",
	} {
		out, _ := fetchScript(t, Config{}, map[string]string{"*": answer(200, "begin 644 robots.txt", "Content-Encoding: "+coding)})
		want{KindUnreachable, CauseEncoding}.check(t, out)
	}
}

// TestExt_CodingsAsOthersReadThem compares how wrong Content-Encodings are read with other clients:
// curl 7.88 --compressed, wget 1.21 --compression=auto and Python's requests 2.34. "text" means
// that a client returned the rules, "bytes" that it returned the body as sent, "-" that it failed.
// Crawlgate accepts a body that they accept, unless rules could be lost.
func TestExt_CodingsAsOthersReadThem(t *testing.T) {
	t.Parallel()
	text := []byte(rules)
	gz, zl, raw := encode(t, "gzip", text), encode(t, "deflate", text), encode(t, "raw", text)
	with := func(data []byte, tail string) []byte { return append(slices.Clip(data), tail...) }
	badSum := slices.Clone(gz)
	badSum[len(badSum)-8] ^= 1
	for _, tt := range []struct {
		coding               string
		body                 []byte
		curl, wget, requests string
		ours                 string // "text", or "" for unreachable
	}{
		{"none", text, "text", "text", "text", "text"},
		{"utf-8", text, "-", "text", "text", "text"},
		{"ISO-8859-1", with(text, "# caf\xe9\n"), "-", "bytes", "bytes", "text"},
		{"aws-chunked", text, "-", "text", "text", "text"},
		{"binary", text, "-", "text", "text", "text"},
		{"8bit", text, "-", "text", "text", "text"},
		{"text/plain", text, "-", "text", "text", "text"},
		{"", text, "text", "text", "text", "text"},
		{"x-gzip", gz, "text", "text", "text", "text"},
		{"GZip", gz, "text", "text", "text", "text"},
		{", gzip,", gz, "text", "bytes", "-", "text"},
		{"gzip, none", gz, "text", "bytes", "-", "text"},
		{"gzip, utf-8", gz, "-", "bytes", "-", "text"},
		{"gzip, gzip", encode(t, "gzip", gz), "text", "bytes", "text", "text"},
		{"deflate", zl, "text", "bytes", "text", "text"},
		{"deflate", raw, "text", "bytes", "text", "text"},
		{"gzip", zl, "text", "text", "-", "text"},
		{"gzip", with(gz, "<!-- cached -->"), "text", "text", "text", "text"},
		{"gzip", with(gz, strings.Repeat("\x00", 16)), "text", "text", "text", "text"},
		// The other clients' bytes would have no rules.
		{"", gz, "bytes", "bytes", "bytes", "text"},
		{"utf-8", gz, "-", "bytes", "bytes", "text"},
		{"", encode(t, "zstd", text), "bytes", "bytes", "bytes", "text"},
		{"utf-8", zl, "-", "bytes", "bytes", ""},
		{"", encode(t, "gzip", gz), "bytes", "bytes", "bytes", ""},
		{"gzip", encode(t, "gzip", gz), "bytes", "bytes", "bytes", ""},
		{"gzip", encode(t, "gzip", encode(t, "br", text)), "bytes", "bytes", "bytes", ""},
		{"brotli", encode(t, "br", text), "-", "bytes", "bytes", ""},
		{"utf-16", []byte("U\x00s\x00e\x00r\x00"), "-", "bytes", "bytes", ""},
		{"base64", []byte("VXNlci1hZ2VudDogKg=="), "-", "bytes", "bytes", ""},
		{"compress", text, "-", "text", "text", ""},
		{"dcz", text, "-", "text", "text", ""},
		{"gzip, aes128gcm", gz, "-", "bytes", "-", ""},
		// No client accepts these, or a rule could be lost.
		{"gzip", text, "-", "-", "-", ""},
		{"gzip, gzip", gz, "-", "bytes", "-", ""},
		{"deflate", gz, "-", "bytes", "-", ""},
		{"gzip", badSum, "-", "-", "-", ""},
		{"gzip", gz[:len(gz)-6], "text", "text", "text", ""},
		{"gzip", with(gz, string(gz[:9])), "text", "text", "text", ""},
		{"deflate", with(zl, "<!-- cached -->"), "text", "bytes", "text", ""},
	} {
		out, _ := fetchScript(t, Config{}, map[string]string{"*": answer(200, string(tt.body), "Content-Encoding: "+tt.coding)})
		w := want{KindUnreachable, CauseEncoding}
		if tt.ours == "text" {
			w = want{KindRules, ""}
		}
		w.check(t, out)
		if out.Kind == KindRules && !strings.HasPrefix(string(out.Body), rules) {
			t.Errorf("%s: body %q", tt.coding, out.Body)
		}
	}
}
