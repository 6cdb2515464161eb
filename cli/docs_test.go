package cli_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/crawlgate/crawlgate/cli"
	"github.com/crawlgate/crawlgate/internal/testdocs"
)

// TestLintDocs checks that each code of a warning is documented.
func TestLintDocs(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../robotstxt/lint.go")
	if err != nil {
		t.Fatal(err)
	}
	section, codes := testdocs.Sections(t, "cli.md")["lint"], regexp.MustCompile(`\tLint\w+ += "(.+)"`).FindAllSubmatch(source, -1)
	for _, code := range codes {
		if !strings.Contains(section, "`"+string(code[1])+"`") {
			t.Errorf("%s is not documented", code[1])
		}
	}
	if len(codes) < 25 {
		t.Errorf("%d codes", len(codes))
	}
}

// TestCommandDocs checks that each command with all of its flags is documented, and nothing
// else.
func TestCommandDocs(t *testing.T) {
	t.Parallel()
	sections := testdocs.Sections(t, "cli.md")
	robots := &cobra.Command{Use: "robots"}
	cli.AddCommands(robots)
	commands, headings := map[string]bool{}, map[string]bool{}
	for heading := range sections {
		headings[heading] = true
	}
	for _, c := range robots.Commands() {
		commands[c.Name()] = true
		section, _, _ := strings.Cut(sections[c.Name()], "\n### ")
		flags := map[string]bool{}
		c.Flags().VisitAll(func(f *pflag.Flag) { flags["--"+f.Name] = true })
		testdocs.Same(t, c.Name()+": flag", flags, testdocs.Named(section))
	}
	testdocs.Same(t, "command", commands, headings)
}
