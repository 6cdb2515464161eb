package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
)

// licenceName fits the files in which modules say under which terms they are.
var licenceName = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents)([-.].*)?$`)

// writeLicences writes the licences of all modules in the builds, each text once with the modules
// that have it. A module without one is an error: nobody may pass it on.
func writeLicences(out io.Writer, builds []*debug.BuildInfo) error {
	users := make(map[string][]string) // of a text
	var texts []string                 // in the order of the first module that has them
	for _, m := range modulesOf(builds) {
		found, err := licencesOf(m)
		if err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
		for _, text := range found {
			if users[text] == nil {
				texts = append(texts, text)
			}
			users[text] = append(users[text], m)
		}
	}
	var b bytes.Buffer
	b.WriteString("The binary of Crawlgate contains these third-party modules, and Go's standard library.\n")
	for _, text := range texts {
		fmt.Fprintf(&b, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 80), strings.Join(users[text], "\n"), text)
	}
	_, err := out.Write(b.Bytes())
	return err
}

// modulesOf is path@version of all modules but the main one, sorted.
func modulesOf(builds []*debug.BuildInfo) []string {
	var list []string
	for _, build := range builds {
		for _, m := range build.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			list = append(list, m.Path+"@"+m.Version)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// licencesOf reads the licences of a module, which the build has put into the module cache.
func licencesOf(module string) ([]string, error) {
	answer, err := exec.Command("go", "mod", "download", "-json", module).Output() //nolint:gosec,noctx // its own list of modules
	if err != nil {
		return nil, fmt.Errorf("go mod download: %w", err)
	}
	var download struct{ Dir string }
	if err := json.Unmarshal(answer, &download); err != nil {
		return nil, fmt.Errorf("go mod download: %w", err)
	}
	files, err := os.ReadDir(download.Dir)
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, file := range files {
		if !file.Type().IsRegular() || !licenceName.MatchString(file.Name()) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(download.Dir, file.Name()))
		if err != nil {
			return nil, err
		}
		texts = append(texts, strings.TrimSpace(string(text)))
	}
	if len(texts) == 0 {
		return nil, errors.New("has no licence")
	}
	return texts, nil
}
