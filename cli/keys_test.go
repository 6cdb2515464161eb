package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/internal/testgateway"
)

// TestKeys checks that a new file is readable only by its user, and that its key signs at once. A
// rotation adds a key that begins a day later, keeps the mode and the link of the file, and leaves
// no other file. A file that cannot be read is not changed. A gateway shows the same keys.
func TestKeys(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "bot.jwk"), filepath.Join(dir, "link.jwk")
	other := runCommand(t.Context(), t, "", "keygen", "--json", filepath.Join(dir, "other.jwk"))
	if !regexp.MustCompile(`^\[\{"id":"\S{43}","state":"signs"\}\]\n$`).MatchString(other.out) {
		t.Errorf("keys --json: got %+v", other)
	}
	made := runCommand(t.Context(), t, "", "keygen", file)
	row := regexp.MustCompile(`^KEY +FROM +UNTIL +STATE\n(\S{43}) +signs\n$`).FindStringSubmatch(made.out)
	info, err := os.Stat(file)
	if made.status != 0 || row == nil || err != nil || info.Mode() != 0o600 {
		t.Fatalf("new file: got %+v, mode of %v, %v", made, info, err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o640); err != nil {
		t.Fatal(err)
	}
	rotated := runCommand(t.Context(), t, "", "keygen", link)
	table := regexp.MustCompile(`^KEY.*\n` + row[1] + ` +(\S+Z) +signs\n(\S{43}) +\S+Z +published\n$`)
	if rotated.status != 0 || !table.MatchString(rotated.out) {
		t.Fatalf("rotation: got %+v", rotated)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Error("the symbolic link was replaced:", info, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode() != 0o640 {
		t.Error("the mode of the file changed:", info, err)
	}
	if shown := runCommand(t.Context(), t, "", "keys", file); shown.status != 0 || shown.out != rotated.out {
		t.Errorf("keys of the file: got %+v", shown)
	}
	g := testgateway.New(t, "agent acmebot {\nsign {\nkeys "+file+"\ndirectory https://bot.example\n}\n}", "")
	if shown := runCommand(t.Context(), t, "", "keys", "--gateway", g.Address(), "acmebot"); shown.status != 0 || shown.out != rotated.out {
		t.Errorf("keys of the gateway: got %+v", shown)
	}
	asked := runCommand(t.Context(), t, "", "keys", "--json", "--gateway", g.Address(), "acmebot")
	var list []adminapi.AgentKey
	if err := json.Unmarshal([]byte(asked.out), &list); err != nil || len(list) != 2 || list[0].State != "signs" || list[0].Until.IsZero() {
		t.Errorf("keys of the gateway in JSON: got %+v: %v", asked, err)
	}
	runCommand(t.Context(), t, "", "keygen", file).check(t, 2, "", list[1].ID+" begins to sign at")
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	runCommand(t.Context(), t, "", "keygen", file).check(t, 2, "", file+": reading keys: no JSON Web Key")
	if text, err := os.ReadFile(file); err != nil || string(text) != "{" {
		t.Errorf("a broken file was changed to %q, %v", text, err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*.jwk.*")); err != nil || len(left) > 0 {
		t.Error(left, err)
	}
	if all := made.out + rotated.out + asked.out; strings.Contains(all, `"d"`) {
		t.Error("the output contains a secret")
	}
}
