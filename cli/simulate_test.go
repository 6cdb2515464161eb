package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/crawlgate/crawlgate" // its module, whose policy is read
	"github.com/crawlgate/crawlgate/internal/testdocs"
)

// newPolicy is the Caddyfile of docs/simulate.md.
const newPolicy = `:3128 {
	robots {
		agent AcmeBot {
			mode report
		}
		deny example.net
	}
}
`

// simulation makes the log and the Caddyfile of docs/simulate.md. It returns a function that writes
// a file beside them, and one that runs simulate.
func simulation(t *testing.T) (log, config string, write func(name, text string) string, simulated func(args ...string) commandRun) {
	t.Helper()
	store, sha := auditStore(t)
	dir := t.TempDir()
	write = func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	// The lines of the example have no address and no User-Agent in their requests.
	example := strings.ReplaceAll(exampleLog(t, sha), `"method":"GET"`, `"client_ip":"127.0.0.1","headers":{"User-Agent":["AcmeBot/1.0"]},"method":"GET"`)
	example = auditAnswer(t, "https://example.com", sha) + auditAnswer(t, "https://example.net", [32]byte{0xab, 0xcd}) + example
	simulated = func(args ...string) commandRun {
		r := runCommand(t.Context(), t, "", append([]string{"simulate", "--store", store}, args...)...)
		r.out = strings.ReplaceAll(r.out, dir+"/", "")
		return r
	}
	return write("access.log", example), write("new.Caddyfile", newPolicy), write, simulated
}

// TestSimulate checks the output that docs/simulate.md shows.
func TestSimulate(t *testing.T) {
	t.Parallel()
	log, config, write, simulated := simulation(t)
	text, isJSON := simulated("--config", config, log), simulated("--config", config, "--json", log)
	if text.status != 1 || isJSON.status != 1 || text.err != "" || isJSON.err != "" {
		t.Errorf("got status %d and %d, want 1: %s%s", text.status, isJSON.status, text.err, isJSON.err)
	}
	testdocs.Shows(t, "simulate.md", newPolicy)
	testdocs.Shows(t, "simulate.md", text.out)
	same := write("same.Caddyfile", ":3128 {\n\trobots {\n\t\tagent AcmeBot\n\t}\n}\n")
	two := write("two.Caddyfile", ":3128 {\n\trobots\n}\n:3129 {\n\trobots {\n\t\tmode off\n\t}\n}\n")
	for _, tt := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"--config", same, log}, 1, "decided otherwise    2\n"}, // the flipped line, and the exception
		{[]string{"--config", two, log}, 2, "there are 2: :3128, :3129; --site names one"},
		{[]string{"--config", two, "--site", ":3129", log}, 1, "allow robots_off"},
		{[]string{"--config", two, "--site", ":1", log}, 2, "has this listener, but :3128, :3129"},
		{[]string{"--config", write("none.Caddyfile", ":80\n"), log}, 2, "there are 0"},
		{[]string{"--config", write("bad.Caddyfile", ":80 {\n\trobots {\n\t\tmode strict\n\t}\n}\n"), log}, 2, "bad.Caddyfile:3"},
		{[]string{"--config", write("bad.json", `{"apps":{"http":{"servers":{"a":{"routes":[{"handle":[{"handler":"robots","nonsense":1}]}]}}}}}`), log}, 2, "nonsense"},
		{[]string{"--config", filepath.Join(filepath.Dir(log), "no.Caddyfile"), log}, 2, "no such file"},
		{[]string{"--config", same}, 2, "no access log is given"},
		{[]string{"--config", same, write("nonsense.log", "nonsense\n")}, 2, "nonsense.log:1: it is not a JSON object"},
	} {
		if r := simulated(tt.args...); r.status != tt.status || !strings.Contains(r.out+r.err, tt.want) || (r.err == "") != (r.status < 2) {
			t.Errorf("%q: got status %d, %s%s", tt.args, r.status, r.out, r.err)
		}
	}
}
