package preferences_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/signals/preferences"
)

// padded returns a Content-Usage value of the given size in bytes with train-ai=n.
func padded(size int) string {
	const head, tail = `train-ai=n;x="`, `"`
	return head + strings.Repeat("a", size-len(head)-len(tail)) + tail
}

// repeated returns a field with n lines; the last one differs from the rest.
func repeated(name, line string, n int, last string) http.Header {
	return http.Header{name: append(slices.Repeat([]string{line}, n-1), last)}
}

// limit is the largest size that is read.
type limit struct {
	name string
	most int
	read func(n int) bool // whether a value of this size is read
}

// check checks a limit and the next larger size.
func (l limit) check(t *testing.T) {
	t.Helper()
	if !l.read(l.most) {
		t.Errorf("%s: a number of %d is not read", l.name, l.most)
	}
	if l.read(l.most + 1) {
		t.Errorf("%s: a number of %d is read, want it refused", l.name, l.most+1)
	}
}

func fieldsOf(h http.Header) preferences.Set { return preferences.Fields(h, 0) }

func isNo(s preferences.Set, purpose string) bool { return s.Value(purpose) == preferences.No }

func isTrainNo(s preferences.Set) bool { return isNo(s, preferences.TrainAI) }

func linkTo(url string) string { return "<" + url + ">; rel=license; type=application/rsl+xml" }

func TestLimitsOfBytes(t *testing.T) {
	t.Parallel()
	address := func(size int) string {
		return "https://a.example/" + strings.Repeat("b", size-len("https://a.example/"))
	}
	signal := func(size int) string {
		return "ai-train=no" + strings.Repeat(" ", size-len("ai-train=no,a=no")) + ",a=no"
	}
	for _, l := range []limit{
		{"bytes of a Content-Usage field", 4096, func(n int) bool { return isTrainNo(fieldOf("Content-Usage", padded(n))) }},
		{"bytes of two Content-Usage fields", 4096, func(n int) bool {
			return isTrainNo(fieldsOf(http.Header{"Content-Usage": {padded(n - 8), "search=y"}}))
		}},
		{"bytes of a Content-Usage line", 4096, func(n int) bool { return isTrainNo(fileOf("Content-Usage: " + padded(n))) }},
		{"bytes of a Content-Signal field", 4096, func(n int) bool { return isTrainNo(fieldOf("Content-Signal", signal(n))) }},
		{"bytes of a Content-Signal line", 4096, func(n int) bool { return isTrainNo(fileOf("Content-Signal: " + signal(n))) }},
		{"bytes of a Link field", 4096, func(n int) bool {
			head := linkTo("a") + ", <b>; x="
			return len(fieldOf("Link", head+strings.Repeat("c", n-len(head))).Decided()) == 1
		}},
		{"bytes of a licence in a Link field", 512, func(n int) bool { return len(fieldOf("Link", linkTo(address(n))).Decided()) == 1 }},
		{"bytes of a licence in a page", 512, func(n int) bool {
			return len(preferences.Page(0, nil, []string{address(n)}).Decided()) == 1
		}},
		{"bytes of a licence in robots.txt", 512, func(n int) bool { return len(fileOf("License: "+address(n)).Decided()) == 1 }},
		{"bytes of a purpose in Content-Usage", 64, func(n int) bool {
			return isNo(fieldOf("Content-Usage", strings.Repeat("p", n)+"=n"), strings.Repeat("p", n))
		}},
		{"bytes of a purpose in Content-Signal", 64, func(n int) bool {
			return isNo(fieldOf("Content-Signal", strings.Repeat("p", n)+"=no"), strings.Repeat("p", n))
		}},
		{"bytes of a TDM file", 64 << 10, func(n int) bool {
			const rule = `[{"location":"/","tdm-reservation":1}]`
			rules, err := preferences.ParseTDMFile([]byte(rule + strings.Repeat(" ", n-len(rule))))
			return err == nil && isTrainNo(rules.Apply("/").Set())
		}},
	} {
		l.check(t)
	}
}

func TestLimitsOfCounts(t *testing.T) {
	t.Parallel()
	for _, l := range []limit{
		{"lines of Content-Usage", 32, func(n int) bool { return isTrainNo(fieldsOf(repeated("Content-Usage", "a=y", n, "train-ai=n"))) }},
		{"lines of Content-Signal", 32, func(n int) bool { return isTrainNo(fieldsOf(repeated("Content-Signal", "a=yes", n, "ai-train=no"))) }},
		{"lines of tdm-reservation", 32, func(n int) bool { return isTrainNo(fieldsOf(repeated("Tdm-Reservation", "0", n, "1"))) }},
		{"lines of Link", 32, func(n int) bool {
			return len(fieldsOf(repeated("Link", "<a>; rel=next", n, linkTo("b"))).Decided()) == 1
		}},
		{"rules of a TDM file", 1000, func(n int) bool {
			rules, err := preferences.ParseTDMFile([]byte("[" + strings.Repeat("{},", n-1) + `{"location":"/","tdm-reservation":1}]`))
			return err == nil && isTrainNo(rules.Apply("/").Set())
		}},
	} {
		l.check(t)
	}
}
