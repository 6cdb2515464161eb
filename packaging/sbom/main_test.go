package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// TestModules compares the list with the Go command's, for a binary that has modules: it is
// built from this package.
func TestModules(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	binary := t.TempDir() + "/sbom"
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("building the binary: %v: %s", err, out)
	}
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		if err := run(out, []string{"modules", binary}); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two runs give different lists")
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(first.Bytes()), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if bom.SerialNumber != "" || bom.Metadata.Timestamp != "2023-11-14T22:13:20Z" || bom.SpecVersion < cdx.SpecVersion1_5 {
		t.Errorf("the BOM has another serial number, version or timestamp: %+v %s", bom, bom.Metadata.Timestamp)
	}
	var got []string
	for _, c := range *bom.Components {
		got = append(got, c.Name+" "+c.Version)
	}
	if want := dependencies(t, binary); len(want) == 0 || !slices.Equal(got, want) {
		t.Errorf("components %q, want %q", got, want)
	}
}

// dependencies returns the modules that `go version -m` names in a binary.
func dependencies(t *testing.T, binary string) (list []string) {
	t.Helper()
	text, err := exec.CommandContext(t.Context(), "go", "version", "-m", "-json", binary).Output()
	if err != nil {
		t.Fatal(err)
	}
	var build struct {
		Deps []struct{ Path, Version string }
	}
	if err := json.Unmarshal(text, &build); err != nil {
		t.Fatal(err)
	}
	for _, m := range build.Deps {
		list = append(list, m.Path+" "+m.Version)
	}
	return list
}

// TestLicences checks the licences of this module's dependencies.
func TestLicences(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run(&out, []string{"licences", binary, binary}); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{"github.com/CycloneDX/cyclonedx-go@v0.12.0\n\n", "Apache License", "Copyright (c) OWASP Foundation"} {
		if strings.Count(text, want) == 0 {
			t.Errorf("the licences lack %q: %.200s", want, text)
		}
	}
	if n := strings.Count(text, "TERMS AND CONDITIONS FOR USE"); n != 1 {
		t.Errorf("a licence text appears %d times, want 1", n)
	}
}

// TestErrors checks the errors for a file that is not a binary and for unknown arguments.
func TestErrors(t *testing.T) {
	for _, args := range [][]string{nil, {"modules"}, {"modules", "main.go"}, {"other", os.Args[0]}} {
		if err := run(&bytes.Buffer{}, args); err == nil {
			t.Errorf("run(%q) gives no error", args)
		}
	}
	if _, err := epoch("soon"); err == nil {
		t.Error("epoch accepts an invalid time")
	}
}
