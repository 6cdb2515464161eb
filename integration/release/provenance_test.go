//go:build release

package release

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/internal/testdocs"
)

type digest map[string]string

// statement is in-toto's v1 statement with the members of SLSA's provenance v1 that a release has.
type statement struct {
	Type    string `json:"_type"`
	Subject []struct {
		Name   string
		Digest digest
	}
	PredicateType string
	Predicate     struct {
		BuildDefinition struct {
			BuildType          string
			ExternalParameters struct{ Version, Commit string }
			InternalParameters struct {
				Tree, Go string
				Settings map[string]map[string]string
			}
			ResolvedDependencies []struct {
				URI, Name string
				Digest    digest
			}
		}
		RunDetails struct{ Builder struct{ ID string } }
	}
}

// TestProvenance checks that the statement has the form of in-toto and SLSA, the hash of each file,
// and the facts of the binaries and the commit.
func TestProvenance(t *testing.T) {
	t.Parallel()
	path := artefact(t, "crawlgate_*.provenance.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var s statement
	if err := decoder.Decode(&s); err != nil {
		t.Fatal(err)
	}
	const repository = "https://github.com/crawlgate/crawlgate"
	if s.Type != "https://in-toto.io/Statement/v1" || s.PredicateType != "https://slsa.dev/provenance/v1" {
		t.Errorf("the types are %q and %q", s.Type, s.PredicateType)
	}
	var subjects, files []string
	for _, subject := range s.Subject {
		subjects = append(subjects, subject.Name)
		if want := (digest{"sha256": sum(t, filepath.Join(dist(t), subject.Name))}); !reflect.DeepEqual(subject.Digest, want) {
			t.Errorf("%s: %v, want %v", subject.Name, subject.Digest, want)
		}
	}
	entries, err := os.ReadDir(dist(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if name := e.Name(); name != filepath.Base(path) && name != "throwaway.pub" && !strings.HasPrefix(name, "SHA256SUMS") {
			files = append(files, name)
		}
	}
	if !slices.Equal(subjects, files) || len(files) < 15 {
		t.Errorf("subjects %q, want %q", subjects, files)
	}

	made := s.Predicate.BuildDefinition
	settings := make(map[string]map[string]string)
	for _, target := range []string{"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64"} {
		info := build(t, artefact(t, "crawlgate_*_"+target))
		flags := made.InternalParameters.Settings[target]["-ldflags"] // no binary records them
		if !strings.HasPrefix(flags, "-s -w") {
			t.Errorf("%s: linked with %q, want -s -w", target, flags)
		}
		settings[target] = map[string]string{"-ldflags": flags}
		for _, setting := range info.Settings {
			settings[target][setting.Key] = setting.Value
		}
		if info.GoVersion != made.InternalParameters.Go || info.Main.Version != made.ExternalParameters.Version || revision(info) != made.ExternalParameters.Commit {
			t.Errorf("%s: the statement has %+v, the binary %s", target, made, info)
		}
	}
	if in := made.InternalParameters; in.Tree != "clean" || !reflect.DeepEqual(in.Settings, settings) {
		t.Errorf("the statement has %+v, want the settings %+v", in, settings)
	}
	commit := made.ExternalParameters.Commit
	goSum := sha256.Sum256([]byte(run(t, "git", "-C", testdocs.Path(), "show", commit+":go.sum")))
	of := made.ResolvedDependencies
	if len(of) != 2 || of[0].URI != "git+"+repository+"@"+commit || of[0].Digest["gitCommit"] != commit ||
		of[1].Name != "go.sum" || of[1].Digest["sha256"] != hex.EncodeToString(goSum[:]) {
		t.Errorf("the materials are %+v", of)
	}
	if !strings.HasPrefix(made.BuildType, repository+"/") || s.Predicate.RunDetails.Builder.ID != repository+"/blob/main/packaging/release.sh" {
		t.Errorf("the build type is %q, the builder %q", made.BuildType, s.Predicate.RunDetails.Builder.ID)
	}
}
