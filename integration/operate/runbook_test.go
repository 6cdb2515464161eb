//go:build slow

package operate

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
)

// runbook acts like an operator with docs/runbook.md and docs/runbook-fleet.md, who types the
// commands on a gateway's machine while the alert fires. It replaces ports, files and a
// placeholder. It imitates systemd only as far as needed: whether the process runs, and its log.
type runbook struct {
	t        *testing.T
	fleet    *chaosFleet
	bin      string // the folder of the programs
	sections map[string]string
	typed    map[string]bool
}

// answer is the output of a command of the runbook, as a regular expression, and its exit status.
type answer struct {
	prints string
	status int
}

// unknown stands for any exit status.
const unknown = -1

// answers lists the answers of the commands of each section, in order.
var answers = map[string][]answer{
	"CrawlgateDown":                {{"inactive", 3}, {`"msg":"ready"`, 0}, {"", 7}},
	"CrawlgateStoreDown":           {{`"error":".*store unavailable`, 0}},
	"CrawlgateErrors":              {{`"decision":"error","reason":"(reset|protocol)"`, 0}},
	"CrawlgateFetchLocal":          {{`"cause":"local"`, 0}, {`process_max_fds 4096`, 0}},
	"CrawlgateDropped":             {{`\{what="waiter"\} \d`, 0}},
	"CrawlgateUntrusted":           {{`"remote_ip":"127.0.0.1"`, 0}},
	"CrawlgateFetchQueue":          {{"", 0}},
	"CrawlgatePaceWait":            {{`\d clocks, \d+ requests waiting`, 0}},
	"CrawlgateEarly":               {{`"reason":"backoff"`, 0}},
	"CrawlgateUnreachable":         {{`http://\S+ +unreachable`, 0}, {"unreachable", unknown}},
	"CrawlgateCAEnds":              {{"notAfter=", 0}, {`certificate="root"`, 0}},
	"CrawlgateExceptionEnds":       {{"except shop.example", 0}},
	"CrawlgateBudgetNear":          {{`budget_left\{agent="budgetbot",what="requests"\} 0`, 0}},
	"CrawlgateReloadFailed":        {{`nowhere\.pem`, 0}, {`successful 0`, 0}},
	"CrawlgateEvidenceDown":        {{`"error": ".*no such file`, 0}, {"no such file", 0}},
	"CrawlgateEvidenceOld":         {{`"unsealed": [1-9]`, 0}},
	"CrawlgateEvidenceUnwitnessed": {{`"witness.example": \{\s+"size": 0,.*\s+"error": ".*refused`, 0}, {"refused", 0}},
	"CrawlgateLogStalled":          {{`crawlgate_log_up 0`, 0}, {"ESTAB", 0}},
	"CrawlgateLogLost":             {{`crawlgate_log_lost_total [1-9]`, 0}},
	"CrawlgateLogNotKept":          {{`"roll_keep_for_days":365`, 0}},
	"CrawlgateFleetFewer":          {{"gw1.acme.example", 0}},
	"CrawlgateFleetDown":           {{"redis does not answer", 0}, {`age_seconds \d`, 0}},
	"CrawlgateOrdersPending":       {{`orders_pending 1`, 0}, {"newsbot", 0}},
	"CrawlgateFleetReset":          {{"two.example", 0}, {"gw1.acme.example", 0}},
	"CrawlgateSharedClockDown":     {{"redis does not answer", 0}},
	"CrawlgateTextsDropped":        {{`early="true"\} [1-9]`, 0}, {"robots.db", 0}},
}

// blocks returns the code blocks of one language in a text.
func blocks(text, language string) (list []string) {
	for _, block := range strings.Split(text, "\n```"+language+"\n")[1:] {
		body, _, _ := strings.Cut(block, "\n```")
		list = append(list, body)
	}
	return list
}

func newRunbook(t *testing.T, fleet *chaosFleet) *runbook {
	t.Helper()
	sections, _ := testdocs.Runbook(t)
	b := &runbook{t: t, fleet: fleet, bin: rig.TempDir(t), sections: sections, typed: map[string]bool{}}
	for _, tool := range []string{"bash", "curl", "jq", "openssl", "ss"} {
		rig.Need(t, tool)
	}
	binary, err := filepath.Abs(rig.Binary)
	if err == nil {
		err = os.Symlink(binary, filepath.Join(b.bin, "crawlgate"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// systemd makes imitations of systemctl and journalctl for a gateway.
func (b *runbook) systemd(g *rig.Gateway) {
	b.t.Helper()
	journal := filepath.Join(b.bin, "journal")
	for name, text := range map[string]string{
		"journal":    g.Stderr.String(),
		"journalctl": fmt.Sprintf("#!/bin/sh\ncat %s\n", journal),
		"systemctl":  fmt.Sprintf("#!/bin/sh\nkill -0 %d && echo active || { echo inactive; exit 3; }\n", g.Cmd.Process.Pid),
	} {
		if err := os.WriteFile(filepath.Join(b.bin, name), []byte(text), 0o700); err != nil {
			b.t.Fatal(err)
		}
	}
}

// follow types the commands of an alert's section at the gateway, the first time that the alert
// fires.
func (b *runbook) follow(alert string, g *rig.Gateway) {
	b.t.Helper()
	if b.typed[alert] {
		return
	}
	b.typed[alert] = true
	var commands []string
	for _, block := range blocks(b.sections[alert], "sh") {
		commands = slices.AppendSeq(commands, strings.SplitSeq(block, "\n"))
	}
	if len(commands) == 0 || len(commands) != len(answers[alert]) {
		b.t.Errorf("%s: %d commands, want %d", alert, len(commands), len(answers[alert]))
		return
	}
	b.systemd(g)
	socket, port, _ := strings.Cut(blocks(testdocs.Text(b.t, "runbook.md"), "sh")[0], "\n")
	admin := socket // the address of the admin endpoint
	if g.Config.Admin != "" {
		admin = port
	}
	here := strings.NewReplacer("/run/crawlgate/admin.sock", g.AdminSocket(), "localhost:2019", g.Config.Admin, "localhost:3128", g.Addr, "/var/log/crawlgate/access.log", g.AccessLog(),
		"/etc/crawlgate/Caddyfile", filepath.Join(g.Dir, "Caddyfile"), "/var/lib/crawlgate", g.Dir,
		"ORIGIN", strings.TrimSuffix(b.fleet.traffic.unreachable.URL("/"), "/"))
	for i, command := range commands {
		cmd := exec.CommandContext(b.t.Context(), "bash", "-c", here.Replace(admin+"\n"+command))
		cmd.Env = append(os.Environ(), "PATH="+b.bin+":"+os.Getenv("PATH"), "CRAWLGATE_GATEWAY="+g.AdminAddress(g.Config), "no_proxy=*")
		out, _ := cmd.CombinedOutput() // the status is checked below
		want, status := answers[alert][i], cmd.ProcessState.ExitCode()
		if want.status != unknown && status != want.status || !regexp.MustCompile(want.prints).Match(out) {
			b.t.Errorf("%s: %s\nexited with %d, want %d and the output %s:\n%.2000s", alert, command, status, want.status, want.prints, out)
		}
	}
}

// whole checks that no section was left out.
func (b *runbook) whole() {
	b.t.Helper()
	for alert := range b.sections {
		if !b.typed[alert] {
			b.t.Errorf("no command of %s was typed", alert)
		}
	}
}
