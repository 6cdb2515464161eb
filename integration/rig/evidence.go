package rig

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
)

// SealedLog is a sealed log of a gateway, besides the ordinary one.
type SealedLog struct {
	T   *testing.T
	Dir string
}

// NewSealedLog makes a folder for a sealed log.
func NewSealedLog(t *testing.T) *SealedLog {
	t.Helper()
	return &SealedLog{t, TempDir(t)}
}

// Config returns a configuration with the sealed log; lines are options of the writer.
func (s *SealedLog) Config(lines string) Config {
	return Config{
		Engine: "gateway gw1.acme.example\npace {\nrate off\nconcurrency 64\n}",
		Global: fmt.Sprintf(`log sealed {
			output robots_evidence {
				file %s {
					roll_size 1MiB
					roll_keep 1000
				}
				%s
			}
			include http.log.access
		}`, filepath.Join(s.Dir, "access.log"), lines),
	}
}

// State returns the folder of the log's evidence.
func (s *SealedLog) State() string { return filepath.Join(s.Dir, "evidence", "access") }

// Files lists the log's files, the oldest first.
func (s *SealedLog) Files() []string {
	s.T.Helper()
	names, err := filepath.Glob(filepath.Join(s.Dir, "access-*"))
	if err != nil {
		s.T.Fatal(err)
	}
	slices.Sort(names)
	return append(names, filepath.Join(s.Dir, "access.log"))
}

// Check verifies the log with another program ([VerifyLog]).
func (s *SealedLog) Check() Verified {
	return VerifyLog(s.T, append([]string{s.State()}, s.Files()...)...)
}
