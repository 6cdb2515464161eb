package block

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// config is the type whose fields the tests set.
type config struct {
	Texts
	Flag        bool            `json:"flag"`
	On          bool            `json:"on"`
	Size        int64           `json:"size"`
	Count       int             `json:"count"`
	Number      int             `json:"number"`
	Span        caddy.Duration  `json:"span"`
	Optional    *caddy.Duration `json:"optional"`
	First, Last caddy.Duration  `json:"-"`
	Left        string          `json:"left"` // not part of a block
	Nested      *nested         `json:"nested"`
	Special     *nested         `json:"special"`
}

// Texts are embedded.
type Texts struct {
	Text kind     `json:"text,omitempty"`
	List []string `json:"lists"`
}

type kind string

type nested struct {
	Inner []string `json:"inners"`
}

func (c *config) read(r *Reader) error {
	return Fields(c, map[string]string{"lists": "list", "inners": "inner", "left": ""}, Grammar{
		"flag":  Flag(&c.Flag),
		"count": Count(&c.Count, 1, 9),
		"two":   {Min: 2, Max: 3, Set: Durations(ParsePositive, &c.First, &c.Last)},
		"special": Nested(func(r *Reader) error {
			c.Special = new(nested)
			return Grammar{"inner": List(&c.Special.Inner)}.Read(r, "special")
		}),
	}).Read(r, "test")
}

// compile fails if the text equals a line of the nested block.
func (c *config) compile() (int, error) {
	if c.Nested == nil {
		return 0, nil
	}
	for _, s := range c.Nested.Inner {
		if s == string(c.Text) {
			return 0, fmt.Errorf("%q is there twice", s)
		}
	}
	return 0, nil
}

func parse(text string) (config, error) {
	var c config
	d := caddyfile.NewTestDispenser("test {\n" + text + "\n}\n")
	d.Next()
	return c, Segment(d, &c, func() *config { return new(config) }, (*config).read, (*config).compile)
}

// TestErrors checks the message and the line of each mistake.
func TestErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		text string
		line int
		want string
	}{
		{"nothing", 2, `unknown option "nothing" in test: want one of count, flag, list, nested, number, on, `},
		{"flag\nflag", 3, `option "flag" of test is given twice`},
		{"flag 1", 2, `option "flag" of test takes no argument, found 1`},
		{"text", 2, `option "text" of test takes 1 argument, found 0`},
		{"list", 2, `option "list" of test takes at least 1 argument, found 0`},
		{"two 1s 2s 3s 4s", 2, `option "two" of test takes at most 3 arguments, found 4`},
		{"text a {\nb\n}", 3, `option "text" of test takes no block`},
		{"on yes", 2, `option "on" of test: unknown value "yes": want on, off`},
		{"size 0", 2, `option "size" of test: "0" is not a size such as 500KiB or 256MiB`},
		{"number 0", 2, `option "number" of test: "0" is not a whole number from 1 to 1000000`},
		{"number 1000001", 2, `option "number" of test: "1000001" is not a whole number from 1 to 1000000`},
		{"count 10", 2, `option "count" of test: "10" is not a whole number from 1 to 9`},
		{"span 0", 2, `option "span" of test: "0" is zero`},
		{"optional -1s", 2, `option "optional" of test: "-1s" is negative`},
		{"two 0s 1s", 2, `"0s" is zero`},
		{"left a", 2, `unknown option "left" in test: want one of count, flag, list, nested, number, on, optional, size, span, special, text, two`},
		{"special {\nouter b\n}", 3, `unknown option "outer" in special: want one of inner`},
		{"special a", 2, `option "special" of test takes no argument, found 1`},
		{"nested a", 2, `option "nested" of test takes no argument, found 1`},
		{"nested {\ninner a\nouter b\n}", 4, `unknown option "outer" in nested: want one of inner`},
		// Faults that several lines cause together.
		{"text a\nnested {\ninner b\ninner a\ninner c\n}\nflag", 5, `test: "a" is there twice`},
		{"nested {\ninner b\ninner a\n}\nflag\ntext b", 7, `test: "b" is there twice`},
		{"nested {\ninner b\n}\ntext \\\nb\nflag", 5, `test: "b" is there twice`},
	} {
		_, err := parse(tt.text)
		place := fmt.Sprintf("Testfile:%d", tt.line)
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Count(err.Error(), place) != 1 {
			t.Errorf("%q: got %v\nwant %s at %s", tt.text, err, tt.want, place)
		}
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	c, err := parse("text a\nlist 1 2\nlist 3\nflag\non on\nsize 2KiB\ncount 3\nnumber 1000000\nspan 4s\n" +
		"optional 0\ntwo 1s 2s\nnested {\ninner q\n}\nspecial {\ninner r\n}")
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprint(c.Text, c.List, c.Flag, c.On, c.Size, c.Count, c.Number, c.Span, *c.Optional, c.First, c.Last, c.Nested.Inner, c.Special.Inner)
	if want := "a[1 2 3] true true 2048 3 1000000 4000000000 0 1000000000 2000000000 [q] [r]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
