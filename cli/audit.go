package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/evidence/verify"
)

type auditOptions struct {
	audit.Config
	textFlags
	json   bool
	strict bool
	sealed bool
	seal   verify.Config
}

// theLogs says in the help of audit and report how logs are named.
const theLogs = `A log is a file with any name, even if it is rotated or compressed (gzip, zstd, bzip2); - is
standard input. In a folder, or for a quoted pattern, access logs are recognised by their lines,
and skipped files are named.`

func auditCommand() *cobra.Command {
	var c auditOptions
	cmd := command(cobra.Command{
		Use:   "audit [--store FILE | --gateway ADDRESS] [--seal] ACCESS_LOG...",
		Short: "Proves access logs by the stored robots.txt texts",
		Long: `Replays access logs against the stored robots.txt texts. It prints the lines that do not follow
from them, and totals for each agent:
  FILE:LINE: KIND: MESSAGE: AGENT URL
The result and its basis come first. docs/audit.md explains each kind, and what a log cannot prove.

` + theLogs + `

The texts come from a running gateway, or with --store from a store that no gateway has open.
Without both flags, and if no gateway runs, the store is crawlgate/robots.db in Caddy's data
directory.

With --seal the lines are also checked against the signed checkpoints of the log: docs/evidence.md.

Exit status: 0 every line follows from the texts, or cannot be disproven; 1 there are findings; 2
there are none, but a text or a file is missing or could not be read.`,
		Example: `  crawlgate robots audit --gateway localhost:2019 /var/log/crawlgate
  crawlgate robots audit --store robots.db --json access.log access-2026-05-01T10-30-00.000-size.log.gz`,
	}, c.run)
	f := cmd.Flags()
	c.addTo(f)
	f.StringSliceVar(&c.OwnGroupOnly, "ignore-wildcard-group", nil, "names of agents whose block says ignore_wildcard_group, separated by commas")
	f.BoolVar(&c.IndexHTML, "index-html", false, "read the texts as a gateway with index_html on does")
	f.StringVar(&c.Redacted, "redacted", "REDACTED", "the mark that the log's filter writes instead of queries or parts of them; empty for no filter")
	f.DurationVar(&c.MinDelay, "crawl-delay-min", 0, "the least Crawl-delay, as set by crawl_delay in the Caddyfile")
	f.DurationVar(&c.MaxDelay, "crawl-delay-max", enforce.DefaultMaxCrawlDelay, "the longest Crawl-delay that is kept, likewise; 0 for none")
	f.DurationVar(&c.Tolerance, "tolerance", 100*time.Millisecond, "by how much a gap may fall short of the Crawl-delay")
	f.BoolVar(&c.strict, "strict", false, "treat lines that cannot be proven as findings: the exit status is 1")
	f.BoolVar(&c.sealed, "seal", false, "check the seals of the lines against the signed checkpoints")
	f.StringSliceVar(&c.seal.Folders, "evidence", nil, "with --seal: folders of evidence, separated by commas; default: evidence beside the first log")
	f.StringArrayVar(&c.seal.Keys, "vkey", nil, "with --seal: a verifier key that was kept elsewhere, as \"evidence key\" prints it; may be repeated; default: the keys in the evidence")
	f.StringSliceVar(&c.seal.Checkpoints, "head", nil, "with --seal: files of checkpoints that were kept elsewhere, separated by commas")
	f.BoolVar(&c.json, "json", false, "print findings, errors and totals as JSON objects, one per line")
	return cmd
}

func (c *auditOptions) run(ctx context.Context, s streams, args []string) (int, error) {
	if c.MinDelay < 0 || c.MaxDelay < 0 || c.Tolerance < 0 {
		return exitError, misused("no time may be below 0")
	}
	logs, err := s.logs(args)
	if err != nil {
		return exitError, err
	}
	var closeTexts func()
	if c.Texts, closeTexts, err = c.open(ctx); err != nil {
		return exitError, err
	}
	defer closeTexts()
	if err := c.sealOptions(args); err != nil {
		return exitError, err
	}
	// With --json, findings are printed as they are found. Otherwise the result is printed first.
	out := bufio.NewWriter(s.out)
	defer func() { _ = out.Flush() }() // s.out keeps the error
	findings, err := newSpool()
	if err != nil {
		return exitError, err
	}
	defer func() { _ = findings.file.Close() }() // the file has no name any more
	to := io.Writer(findings)
	if c.json {
		to = out
	}
	totals, err := audit.Run(ctx, c.Config, logs, func(f audit.Finding) { c.printFinding(to, f) }, s.faults(to, c.json))
	if err != nil {
		return exitError, errors.Join(err, findings.copyTo(out)) // those so far
	}
	status := c.status(totals)
	return status, c.print(out, findings, totals, status)
}

// sealOptions checks the flags about seals and sets their defaults.
func (c *auditOptions) sealOptions(logs []string) error {
	if !c.sealed {
		if len(c.seal.Folders)+len(c.seal.Keys)+len(c.seal.Checkpoints) > 0 {
			return misused("--evidence, --vkey and --head are for --seal")
		}
		return nil
	}
	if len(c.seal.Folders) == 0 {
		beside := logs[0]
		if info, err := os.Stat(beside); err != nil || !info.IsDir() {
			beside = filepath.Dir(beside)
		}
		c.seal.Folders = []string{filepath.Join(beside, "evidence")}
	}
	c.Seal = &c.seal
	return nil
}

// status returns the exit status. Findings come first, because otherwise anyone could hide them
// behind one unreadable line.
func (c *auditOptions) status(t audit.Totals) int {
	switch {
	case len(t.Findings) > 0:
		return exitNo
	case t.Errors > 0:
		return exitError
	case c.strict && t.Unproven() > 0:
		return exitNo
	}
	return exitOK
}

// spool keeps output for later, in a file without a name.
type spool struct {
	file *os.File
	*bufio.Writer
}

func newSpool() (*spool, error) {
	f, err := os.CreateTemp("", "audit")
	if err != nil {
		return nil, fmt.Errorf("keeping findings: %w", err)
	}
	_ = os.Remove(f.Name()) // if that fails, a temporary file is left
	return &spool{f, bufio.NewWriter(f)}, nil
}

func (s *spool) copyTo(w io.Writer) error {
	flushErr := s.Flush()
	_, seekErr := s.file.Seek(0, io.SeekStart)
	_, err := io.Copy(w, s.file)
	if err := errors.Join(flushErr, seekErr, err); err != nil {
		return fmt.Errorf("printing findings: %w", err)
	}
	return nil
}

// The objects that --json prints, one per line. docs/audit-json.md is made from the comments.
type (
	// AuditFinding is a line that does not follow from the texts.
	AuditFinding struct {
		// Type is "finding".
		Type string `json:"type"`
		audit.Finding
	}
	// AuditError is a line or file that cannot be read.
	AuditError struct {
		// Type is "error", or "torn" of a line that was cut off.
		Type string `json:"type"`
		audit.Place
		// Error says what could not be read, and why.
		Error string `json:"error"`
	}
	// AuditTotals sums up the logs.
	AuditTotals struct {
		// Type is "totals".
		Type string `json:"type"`
		audit.Totals
	}
)

// logs finds the logs that arguments name, and reports the files that it skips.
func (s streams) logs(args []string) ([][]audit.Source, error) {
	if len(args) == 0 {
		return nil, misused("no access log is given")
	}
	logs, left, err := audit.Files(args, s.in)
	for _, f := range left {
		s.complain("left out: %s: %v", f.File, f.Err)
	}
	return logs, err
}

// faults prints what could not be read, with --json to out as well.
func (s streams) faults(out io.Writer, asJSON bool) func(audit.Fault) {
	return func(f audit.Fault) {
		place := f.File
		if f.Line > 0 {
			place = fmt.Sprintf("%s:%d", f.File, f.Line)
		}
		s.complain("%s: %v", place, f.Err)
		if asJSON {
			kind := "error"
			if f.Torn {
				kind = "torn"
			}
			printJSON(out, AuditError{kind, f.Place, f.Err.Error()})
		}
	}
}

// unread prints what could not be read, and sets the exit status unless only a line was cut off.
func (s streams) unread(status *int) func(audit.Fault) {
	return func(f audit.Fault) {
		if !f.Torn {
			*status = exitError
		}
		s.faults(nil, false)(f)
	}
}

func (c *auditOptions) printFinding(out io.Writer, f audit.Finding) {
	if c.json {
		printJSON(out, AuditFinding{"finding", f})
	} else {
		printLine(out, fmt.Sprintf("%s:%d: %s: %s: %s %s", f.File, f.Line, f.Kind, f.Message, dashed(f.Agent), f.URL))
	}
}
