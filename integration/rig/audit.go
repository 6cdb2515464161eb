package rig

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/internal/lines"
	"github.com/crawlgate/crawlgate/internal/testdocs"
)

// AuditRun is the output of `crawlgate robots audit --json`.
type AuditRun struct {
	Status   int
	Findings []AuditFinding
	Errors   []string
	Totals   struct {
		Checked     int64            `json:"checked"`
		Torn        int64            `json:"torn"`
		Foreign     int64            `json:"not_ours"`
		Replayed    int64            `json:"replayed"`
		NotProvable map[string]int64 `json:"not_provable"`
		Gaps        struct{ Pairs, Kept, Short int64 }
		Agents      []struct {
			Agent   string `json:"agent"`
			Owner   string `json:"owner"`
			Contact string `json:"contact"`
			AuditOutcomes
			Tunnels struct {
				AuditOutcomes
				Blind int64 `json:"blind"`
			} `json:"tunnels"`
		} `json:"agents"`
	}
	Stderr   string
	Verified Verified // the verifier's result for the same files, for --seal on one log
}

// AuditOutcomes has the counts of an audit or a report, of requests or of tunnels.
type AuditOutcomes struct {
	Asked   int64 `json:"asked"`
	Allowed int64 `json:"allowed"`
	Refused int64 `json:"refused"`
	Failed  int64 `json:"failed"`
}

// AuditFinding is a finding of an audit.
type AuditFinding struct {
	File, Kind, Message string
	Line                int
}

// Audit runs `crawlgate robots audit`.
func Audit(t *testing.T, args ...string) (r AuditRun) {
	t.Helper()
	// The tolerance for gaps is larger than the default, because in CI all packages share two
	// processors.
	cmd := exec.CommandContext(t.Context(), Binary, append([]string{"robots", "audit", "--json", "--tolerance", "300ms", "--crawl-delay-max", "5s"}, args...)...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		r.Status = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	r.Stderr = stderr.String()
	s := bufio.NewScanner(&out)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		var head struct{ Type string }
		if err := json.Unmarshal(s.Bytes(), &head); err != nil {
			t.Fatalf("%v: %s", err, s.Text())
		}
		switch head.Type {
		case "finding":
			var f AuditFinding
			if err := json.Unmarshal(s.Bytes(), &f); err != nil {
				t.Fatal(err)
			}
			r.Findings = append(r.Findings, f)
		case "error":
			r.Errors = append(r.Errors, s.Text())
		case "totals":
			if err := json.Unmarshal(s.Bytes(), &r.Totals); err != nil {
				t.Fatal(err)
			}
		}
	}
	if slices.Contains(args, "--seal") {
		r.agree(t, args)
	}
	return r
}

// Clean fails the test if the audit found anything.
func (r AuditRun) Clean(t *testing.T, what string) {
	t.Helper()
	if r.Status != 0 || len(r.Findings) > 0 || len(r.Errors) > 0 || len(r.Totals.NotProvable) > 0 {
		t.Errorf("%s: status %d, %d findings, %d errors, %v: %s", what, r.Status, len(r.Findings), len(r.Errors), r.Totals.NotProvable, r.Stderr)
		for _, f := range r.Findings[:min(len(r.Findings), 10)] {
			t.Errorf("%s:%d: %s: %s", f.File, f.Line, f.Kind, f.Message)
		}
	}
}

// LogFiles returns the files of a log. While a file is being packed it has a copy that ends in
// .tmp, which remains if the gateway exits before the end. All of its lines are in the file itself.
func LogFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "access*"))
	files = slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, ".tmp") })
	if err != nil || len(files) == 0 {
		t.Fatalf("no log files: %v", err)
	}
	return files
}

// Unpacked returns the text of a log, packed or not.
func Unpacked(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	z, err := lines.Unpack(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = z.Close() }()
	if data, err = io.ReadAll(z); err != nil {
		t.Fatal(err)
	}
	return data
}

// Verified is the output of verify_evidence.py, a program that was written from the rules in
// docs/evidence-format.md alone.
type Verified struct {
	Verdict     string
	Generations map[string]struct {
		Lines, Checkpoints, Newest int
	}
	Findings, Incomplete []AuditFinding
}

// VerifyLog runs verify_evidence.py on files of a log.
func VerifyLog(t *testing.T, args ...string) (found Verified) {
	t.Helper()
	program := testdocs.Path("integration", "clients", "verify_evidence.py")
	out, err := exec.CommandContext(t.Context(), Need(t, "python3"), append([]string{program, "--json"}, args...)...).Output()
	if jsonErr := json.Unmarshal(out, &found); jsonErr != nil || (err == nil) != (found.Verdict == "PASS") {
		t.Fatalf("verify_evidence.py %q: %v, %v\n%s", args, err, jsonErr, out)
	}
	return found
}

// agree checks that the verifier and an audit with --seal have the same verdict on the one log in a
// folder.
func (r *AuditRun) agree(t *testing.T, args []string) {
	t.Helper()
	var kept, folders []string
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "--head", "--vkey":
			kept = append(kept, args[i], args[i+1])
			i++
		case "--store", "--gateway":
			i++
		case "--seal", "--strict":
		default:
			folders = append(folders, args[i])
		}
	}
	states, err := filepath.Glob(filepath.Join(folders[0], "evidence", "*"))
	if err != nil {
		t.Fatal(err)
	}
	if len(folders) > 1 || len(states) != 1 {
		return
	}
	files := LogFiles(t, folders[0])
	for i, name := range files {
		if packed, ok := strings.CutSuffix(name, ".zst"); ok && !slices.Contains(files, packed) { // Python's library does not read zstd
			files[i] = filepath.Join(t.TempDir(), filepath.Base(packed))
			if err := os.WriteFile(files[i], Unpacked(t, name), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	verdict := "PASS"
	if slices.ContainsFunc(r.Findings, func(f AuditFinding) bool { return strings.HasPrefix(f.Kind, "seal_") }) {
		verdict = "FAIL"
	} else if len(r.Errors) > 0 {
		verdict = "INCOMPLETE"
	}
	r.Verified = VerifyLog(t, slices.Concat(kept, states, files)...)
	if v := r.Verified; v.Verdict != verdict {
		t.Errorf("the verdict of verify_evidence.py is %s, of robots audit %s: %+v %+v; %+v %q", v.Verdict, verdict, v.Findings, v.Incomplete, r.Findings, r.Errors)
	}
}
