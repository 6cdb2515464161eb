package rig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"testing"

	"github.com/crawlgate/crawlgate/enforce"
)

// Simulated is the output of `crawlgate robots simulate --json`.
type Simulated struct {
	Status int
	Lines  map[int]SimulatedLine // by their lines in the log
	Totals SimulatedTotals
}

// SimulatedTotals are counts of lines.
type SimulatedTotals struct {
	Lines, Same, Different, Errors int64
	AsRecorded                     int64            `json:"as_recorded"`
	NotComputed                    map[string]int64 `json:"not_computed"`
}

// SimulatedLine is the result for one line.
type SimulatedLine struct {
	Type, Cause, Method, URL, Error string
	Line                            int
	Old, New                        enforce.LogRecord
}

// Simulate runs `crawlgate robots simulate`.
func Simulate(t *testing.T, args ...string) (r Simulated) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), Binary, append([]string{"robots", "simulate", "--json"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		r.Status = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	if r.Status == 2 {
		t.Fatalf("simulate %q: %s", args, &stderr)
	}
	r.Lines = make(map[int]SimulatedLine)
	for line := range bytes.Lines(out) {
		var l SimulatedLine
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if l.Type == "totals" {
			err = json.Unmarshal(line, &r.Totals)
		}
		r.Lines[l.Line] = l
	}
	if err != nil && r.Status == 0 {
		t.Fatal(err)
	}
	return r
}

// Decided returns the part of a decision that tests compare.
func Decided(r enforce.LogRecord) string {
	return fmt.Sprintf("%s %s %t %q %q %q %d %s %q", r.Decision, r.Reason, r.WouldDeny, r.Agent, r.Group, r.Rule, r.Line, r.Form, r.Exception)
}
