// Command sbom reads the list of modules that the Go toolchain leaves in a binary.
//
//	sbom modules BINARY       that list as CycloneDX JSON
//	sbom licences BINARY...   the licences of all modules in the binaries, from the module cache
//
// The same binary gives the same bytes: there is no serial number, and the time is that of
// SOURCE_DATE_EPOCH.
package main

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, args []string) error {
	if len(args) < 2 {
		return errors.New("usage: sbom modules BINARY | sbom licences BINARY...")
	}
	builds := make([]*debug.BuildInfo, 0, len(args)-1)
	for _, path := range args[1:] {
		build, err := buildinfo.ReadFile(path)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		builds = append(builds, build)
	}
	switch args[0] {
	case "modules":
		made, err := epoch(os.Getenv("SOURCE_DATE_EPOCH"))
		if err != nil {
			return err
		}
		return cdx.NewBOMEncoder(out, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bomOf(builds[0], made))
	case "licences":
		return writeLicences(out, builds)
	}
	return fmt.Errorf("%q: want modules or licences", args[0])
}

// epoch reads the seconds of SOURCE_DATE_EPOCH.
func epoch(text string) (time.Time, error) {
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// bomOf has the main module as the subject and each other module as a component.
func bomOf(build *debug.BuildInfo, made time.Time) *cdx.BOM {
	subject := component(&build.Main)
	subject.Type = cdx.ComponentTypeApplication
	subject.Licenses = &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}}
	properties := []cdx.Property{{Name: "go:version", Value: build.GoVersion}}
	for _, s := range build.Settings {
		properties = append(properties, cdx.Property{Name: "go:build:" + s.Key, Value: s.Value})
	}
	subject.Properties = &properties

	components := make([]cdx.Component, 0, len(build.Deps))
	refs := make([]string, 0, len(build.Deps))
	for _, m := range build.Deps {
		c := component(m)
		components, refs = append(components, c), append(refs, c.BOMRef)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Timestamp: made.Format(time.RFC3339), Component: &subject}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: subject.BOMRef, Dependencies: &refs}}
	return bom
}

// component is a module as it was compiled: where another replaces it, that one.
func component(m *debug.Module) cdx.Component {
	if m.Replace != nil {
		m = m.Replace
	}
	purl := "pkg:golang/" + m.Path + "@" + m.Version
	c := cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: purl}
	if m.Sum != "" {
		c.Properties = &[]cdx.Property{{Name: "go:sum", Value: m.Sum}}
	}
	return c
}
