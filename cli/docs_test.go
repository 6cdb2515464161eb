package cli_test

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/crawlgate/crawlgate/cli"
	"github.com/crawlgate/crawlgate/internal/testdocs"
)

const cliHead = `# Commands

You find every command below ` + "`crawlgate robots`" + `, with its flags, exit statuses and examples. This page is generated from the code: it
has the texts that ` + "`crawlgate robots COMMAND --help`" + ` prints.

The other commands of ` + "`crawlgate`" + ` are [Caddy's](https://caddyserver.com/docs/command-line). ` + "`upgrade`, `add-package` and `remove-package`" + `
are missing, because they would replace the gateway by a Caddy without it: [operate.md](operate.md) says how to upgrade. ` + "`crawlgate version`" + `
prints the version of Crawlgate and of Caddy. In a binary that xcaddy built it prints Caddy's version only, and ` + "`list-modules --versions`" + `
prints Crawlgate's.

The [packages](install.md#packages) install completion for bash, zsh and fish; ` + "`crawlgate completion`" + ` prints it. It asks the gateway for
agents, origins, blocked hosts and stops, and offers none if the gateway does not answer within a second.

## The gateway

`

const auditJSONHead = `# JSON of audit and simulate

You process the results of ` + "`crawlgate robots audit --json` and `robots simulate --json`" + ` with your own tools. This page
is generated from the code: the examples are what the commands print, and each text is the doc comment of a Go type.

Each finding, difference, error and, last, the totals are one JSON object on one line. Later releases may add fields, but do not remove or
change any. A field marked "always" is in every object of its type. Others are left out if they have no value. Texts of sites are not escaped
beyond JSON: escape them before you print them.
`

// TestAuditJSONDocs makes docs/audit-json.md from the types of the objects and from the output of
// the commands. With -update it writes the page.
func TestAuditJSONDocs(t *testing.T) {
	t.Parallel()
	page := testdocs.Page{T: t}
	page.WriteString(auditJSONHead)
	page.WriteString("\n## Example of `audit`\n\nThis is the log of [Audit a log](audit.md#what-it-prints):\n\n```json\n" + shownAudit(t, "--json").out + "```\n")
	page.WriteString("\n## Fields of `audit`\n")
	page.Object("### A finding", reflect.TypeFor[cli.AuditFinding]())
	page.Object("### An error", reflect.TypeFor[cli.AuditError]())
	page.Object("### The totals", reflect.TypeFor[cli.AuditTotals]())
	page.Inner()
	log, config, _, simulated := simulation(t)
	page.WriteString("\n## Example of `simulate`\n\nThis is the log of [Try another policy](simulate.md#what-it-prints):\n\n```json\n" + simulated("--config", config, "--json", log).out + "```\n")
	page.WriteString("\n## Fields of `simulate`\n\nThe object of an error is as [for audit](#an-error).\n")
	page.Object("### A line", reflect.TypeFor[cli.SimulatedLine]())
	page.Object("### The totals of a simulation", reflect.TypeFor[cli.SimulatedTotals]())
	page.Inner()
	page.WriteString("\n## Next\n\n* [Audit a log](audit.md): what each finding means\n* [Try another policy](simulate.md): what is computed\n* [Commands](cli.md): the flags\n")
	testdocs.Generated(t, "audit-json.md", page.String())
}

// cliPage writes the sections of the commands.
type cliPage struct {
	strings.Builder
}

var (
	anyFlag  = regexp.MustCompile(`--[a-z][a-z-]+`)
	pageLink = regexp.MustCompile(`docs/([a-z-]+\.md)(#[a-z-]+)?`)
)

// prose returns a text of a command as Markdown.
func prose(text string) string {
	text = strings.NewReplacer("*", `\*`, "<", `\<`, "|", `\|`).Replace(text)
	text = anyFlag.ReplaceAllString(text, "`$0`")
	return pageLink.ReplaceAllString(text, "[$1]($1$2)")
}

// long writes paragraphs and lists, and indented text as a code block.
func (p *cliPage) long(text string) {
	code := false
	for line := range strings.Lines(text + "\n") {
		indented := strings.HasPrefix(line, "  ")
		if list := strings.HasSuffix(p.String(), "\n") && strings.Contains(lastBlock(p.String()), "* "); list && indented {
			p.WriteString(prose(line))
			continue
		}
		if indented != code {
			p.fence(indented)
		}
		code = indented
		switch {
		case code:
			p.WriteString(line[2:])
		case strings.HasPrefix(line, "* "):
			p.WriteString("* " + prose(line[2:]))
		default:
			p.WriteString(prose(line))
		}
	}
	if code {
		p.WriteString("```\n")
	}
}

// lastBlock returns the text after the last empty line.
func lastBlock(text string) string {
	return text[strings.LastIndex(text, "\n\n")+1:]
}

// fence begins or ends a code block, with an empty line outside it.
func (p *cliPage) fence(begin bool) {
	if begin {
		p.WriteString("\n```text\n")
	} else {
		p.WriteString("```\n\n")
	}
}

// examples writes the commands without output in one block, and each other command with its output.
func (p *cliPage) examples(text string) {
	for _, example := range regexp.MustCompile(`\n\n  \$ `).Split("\n"+text, -1) {
		lines := strings.ReplaceAll(strings.Trim(example, "\n"), "\n  ", "\n")
		if rest, ok := strings.CutPrefix(lines, "  "); ok {
			lines = strings.TrimPrefix(rest, "$ ")
		}
		if strings.HasPrefix(lines, "crawlgate") && strings.Contains(text, "$ "+strings.SplitN(lines, "\n", 2)[0]) {
			lines = "$ " + lines
		}
		p.WriteString("\n```\n" + lines + "\n```\n")
	}
}

func (p *cliPage) flags(c *cobra.Command) {
	p.WriteString("\n| flag | default | meaning |\n|---|---|---|\n")
	c.Flags().VisitAll(func(f *pflag.Flag) {
		value := f.DefValue
		if value == "[]" || value == "false" || value == "0" {
			value = ""
		}
		if value != "" {
			value = " `" + value + "`"
		}
		fmt.Fprintf(p, "| `--%s` |%s | %s |\n", f.Name, value, prose(f.Usage))
	})
}

// TestCLIDocs checks that docs/cli.md has each command with its texts, flags and defaults. With -update it writes the page.
func TestCLIDocs(t *testing.T) {
	t.Parallel()
	p := &cliPage{}
	p.WriteString(cliHead)
	p.long(caddycmd.Commands()["robots"].Long)
	robots := &cobra.Command{Use: "robots"}
	cli.AddCommands(robots)
	for _, c := range robots.Commands() {
		if c.Long == "" || c.Example == "" {
			t.Errorf("%s has no description or no example", c.Name())
		}
		fmt.Fprintf(p, "\n## `%s`\n\n", c.Name())
		p.WriteString("```text\ncrawlgate robots " + strings.ReplaceAll(c.Use, " | "+c.Name()+" ", "\ncrawlgate robots "+c.Name()+" ") + "\n```\n\n")
		p.long(c.Long)
		p.examples(c.Example)
		p.flags(c)
	}
	if n := len(robots.Commands()); n < 20 {
		t.Errorf("found %d commands, want at least 20", n)
	}
	testdocs.Generated(t, "cli.md", strings.ReplaceAll(p.String(), "\n\n\n", "\n\n"))
}

// TestHelpFits checks that the help of each command fits a terminal of 100 columns, except for
// lines of examples.
func TestHelpFits(t *testing.T) {
	t.Parallel()
	robots := &cobra.Command{Use: "robots"}
	cli.AddCommands(robots)
	for _, c := range robots.Commands() {
		for line := range strings.Lines(c.Short + "\n" + c.Long + "\n" + c.UsageString()) {
			line = strings.TrimSuffix(line, "\n")
			if len([]rune(line)) > 100 && !strings.Contains(c.Example, line) && !strings.Contains(line, c.Use) {
				t.Errorf("help of %s has a line over 100 characters: %q", c.Name(), line)
			}
		}
	}
}

// TestLintDocs checks that each code of a warning is documented.
func TestLintDocs(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../robotstxt/lint.go")
	if err != nil {
		t.Fatal(err)
	}
	section, codes := testdocs.Sections(t, "cli.md")["lint"], make(map[string]bool)
	for _, warning := range regexp.MustCompile(`(?:warn\(|warnAt\([^,]+, |Warning\{+\w+, )"([^"]+)"`).FindAllSubmatch(source, -1) {
		codes[string(warning[1])] = true
	}
	for code := range codes {
		if !regexp.MustCompile(`(?m)(^|, )` + code + `(,|$| \()`).MatchString(section) {
			t.Errorf("%s is not documented", code)
		}
	}
	if len(codes) < 31 {
		t.Errorf("found %d codes, want at least 31", len(codes))
	}
}
