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

// TestModules compares the list with the Go command's, for a binary that has modules: this one is
// built from the same package.
func TestModules(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	binary := t.TempDir() + "/sbom"
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		if err := run(out, []string{"modules", binary}); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two runs differ")
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(first.Bytes()), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if bom.SerialNumber != "" || bom.Metadata.Timestamp != "2023-11-14T22:13:20Z" || bom.SpecVersion < cdx.SpecVersion1_5 {
		t.Errorf("%+v %s", bom, bom.Metadata.Timestamp)
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

// TestLicences reads those of this test's own modules.
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
			t.Errorf("%q is not in it: %.200s", want, text)
		}
	}
	if n := strings.Count(text, "TERMS AND CONDITIONS FOR USE"); n != 1 {
		t.Errorf("the same text %d times", n)
	}
}

// TestErrors: a file that is not a binary, and arguments that mean nothing.
func TestErrors(t *testing.T) {
	for _, args := range [][]string{nil, {"modules"}, {"modules", "main.go"}, {"other", os.Args[0]}} {
		if err := run(&bytes.Buffer{}, args); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
	if _, err := epoch("soon"); err == nil {
		t.Error("an invalid time is accepted")
	}
}
