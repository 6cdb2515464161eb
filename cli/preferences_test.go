package cli_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/internal/testgateway"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

const preferring = "User-agent: *\nDisallow: /private/\nContent-Signal: search=yes, ai-train=no\n\n" +
	"User-agent: Google-Extended\nDisallow: /g\nContent-Usage: /open train-ai=y, genai=n\n"

// TestCheckPreferences checks that what robots.txt says about a purpose is shown, and refuses only
// with --preferences deny. Of several groups the strictest counts (draft-ietf-aipref-vocab-07
// section 5.1), and a URL that must not be fetched has no preferences (draft-ietf-aipref-attach-05
// section 3.1).
func TestCheckPreferences(t *testing.T) {
	t.Parallel()
	robots := file(t, preferring)
	const (
		head   = "VERDICT  REASON  LINE  RULE  GROUP  STATE  URL\n"
		passes = head + "allow  no_rule  *  rules  /open\n"
		said   = "\nPURPOSE  SAYS  SOURCE  LINE  CONFLICT  URL\n"
		search = "search  y  robots_content_signal  3  /open\n"
		train  = "train-ai  n  robots_content_signal  3"
	)
	for _, tt := range []struct {
		name, args string
		status     int
		out, err   string
	}{
		{"no purpose", "/open", 0, passes + said + search + train + "  /open\n", ""},
		{"a conflict", "--purpose train-ai /open", 0, passes + said + search + train + "  yes  /open\n", ""},
		{"no conflict", "--purpose search --preferences deny /open", 0, passes + said + search + train + "  /open\n", ""},
		{"nothing known", "--purpose tdm /open", 0, passes + said + search + train + "  /open\ntdm  unknown  /open\n", ""},
		{
			"denied", "--purpose search,train-ai --preferences deny /open", 1,
			head + "deny  preference_denied  *  rules  /open\n" + said + search + train + "  yes  /open\n", saysNo,
		},
		{
			"repeated", "--purpose tdm --purpose train-ai --preferences deny /open", 1,
			head + "deny  preference_denied  *  rules  /open\n" + said + search + train + "  yes  /open\ntdm  unknown  /open\n", saysNo,
		},
		{
			"other groups", "--also-obey Google-Extended --purpose genai /open", 0,
			passes + said + search + train + "  /open\ngenai  n  robots_content_usage  7  yes  /open\n", "",
		},
		{
			"disallowed by another group", "--also-obey Google-Extended --purpose train-ai /g", 1,
			head + "deny  disallowed  6  /g  Google-Extended  rules  /g\n", saysNo,
		},
		{"robots.txt itself", "--purpose train-ai /robots.txt", 0, head + "allow  robots_txt_itself  unknown  /robots.txt\n", ""},
		{"a bad purpose", "--purpose Train /open", 2, "", `--also-obey: purpose "Train": want a word`},
		{"a purpose twice", "--purpose tdm,tdm /open", 2, "", "given twice"},
		{"a bad token", "--also-obey a/1 /open", 2, "", "not a product token"},
		{"a bad mode", "--purpose tdm --preferences refuse /open", 2, "", `--preferences "refuse": want log, deny`},
		{"a mode without purpose", "--preferences deny /open", 2, "", "--preferences goes with --purpose"},
		{"a gateway", "--gateway x --purpose tdm /open", 2, "", "do not go with --gateway"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{"check", "--agent", "a"}, strings.Fields(tt.args)...)
			if !strings.Contains(tt.args, "--gateway") {
				args = append(args, "--robots", robots)
			}
			runCommand(t.Context(), t, "", args...).check(t, tt.status, tt.out, tt.err)
		})
	}
	runCommand(t.Context(), t, "", "check", "--jsonl", "--purpose", "tdm").check(t, 2, "", "takes no other flag")
	run := runCommand(t.Context(), t, "", "check", "--robots", robots, "--agent", "a", "--purpose", "train-ai", "--json", "/open")
	var r enforce.LogRecord
	if err := json.Unmarshal([]byte(run.out), &r); err != nil || run.status != 0 || len(r.Preferences) != 2 ||
		r.Conflict != "train-ai=n;from=robots;line=3" || r.SignalsRead != "robots_txt" {
		t.Errorf("check with preferences: error %v: %+v", err, run)
	}
}

// TestCheckPreferencesInDocs checks that docs/cli.md shows what the command prints.
func TestCheckPreferencesInDocs(t *testing.T) {
	t.Parallel()
	run := runCommand(t.Context(), t, "", "check", "--robots", file(t, preferring), "--agent", "AcmeBot", "--purpose", "train-ai,tdm", "/page")
	if run.status != 0 {
		t.Errorf("without --preferences: got %+v, want status 0", run)
	}
	testdocs.Shows(t, "cli.md", run.out)
}

// TestCheckPreferencesOfGateway checks that a gateway uses the block of the agent.
func TestCheckPreferencesOfGateway(t *testing.T) {
	g := testgateway.New(t, "agent trainer {\npurpose train-ai\npreferences deny\n}\nagent seeker {\npurpose search tdm\n}", "")
	s := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	s.SetRobots(testorigin.OK(preferring))
	for _, tt := range []struct {
		agent  string
		status int
		out    string
		err    string
	}{
		{
			"trainer", 1, "deny  preference_denied  *  rules  http://<HOST>/page\n\nPURPOSE  SAYS  SOURCE  LINE  CONFLICT  URL\n" +
				"search  y  robots_content_signal  3  http://<HOST>/page\ntrain-ai  n  robots_content_signal  3  yes  http://<HOST>/page\n", saysNo,
		},
		{
			"seeker", 0, "allow  no_rule  *  rules  http://<HOST>/page\n\nPURPOSE  SAYS  SOURCE  LINE  CONFLICT  URL\n" +
				"search  y  robots_content_signal  3  http://<HOST>/page\ntrain-ai  n  robots_content_signal  3  http://<HOST>/page\n" +
				"tdm  unknown  http://<HOST>/page\n", "",
		},
	} {
		runCommand(t.Context(), t, "", "check", "--gateway", g.Address(), "--agent", tt.agent, s.URL("/page")).check(t, tt.status,
			"VERDICT  REASON  LINE  RULE  GROUP  STATE  URL\n"+tt.out, tt.err)
	}
}

// TestShowPreferences checks that all lines that apply to the agent are listed, with their paths:
// the lines of its groups, and signals before the first group (docs/signals.md, Content-Signal).
func TestShowPreferences(t *testing.T) {
	g := testgateway.New(t, "agent trainer {\npurpose train-ai\nalso_obey Google-Extended\n}\nagent seeker", "")
	s := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	const head = "\n\nPURPOSE  SAYS  SOURCE  LINE  PATH\n"
	show := func(agent string) string {
		t.Helper()
		run := runCommand(t.Context(), t, "", "show", "--gateway", g.Address(), "--agent", agent, s.Origin().String())
		if run.status != 0 || run.err != "" {
			t.Fatalf("got %+v", run)
		}
		_, out, _ := strings.Cut(golden(run.out), "fresh until  <TIME>")
		out, _, _ = strings.Cut(out, "\nFIRST SEEN")
		return out
	}
	for _, tt := range []struct{ name, robots, agent, want string }{
		{"its own", preferring, "seeker", head + "search  y  robots_content_signal  3\ntrain-ai  n  robots_content_signal  3\n"},
		{
			"also obeyed", preferring, "trainer", head + "search  y  robots_content_signal  3\ntrain-ai  n  robots_content_signal  3\n" +
				"train-ai  y  robots_content_usage  7  /open\ngenai  n  robots_content_usage  7  /open\n",
		},
		{"none", "User-agent: *\nDisallow: /x\n", "seeker", "\n"},
		{
			"before all groups", "Content-Signal: /a\x1b ai-train=maybe\nContent-Usage: search=n\nUser-agent: seeker\nDisallow:\n", "seeker",
			head + `train-ai  unknown  robots_content_signal  1  /a\x1b` + "\n",
		},
		{
			"many", "User-agent: *\n" + strings.Repeat("Content-Usage: /a a=n\n", 30), "seeker",
			head + strings.Repeat("a  n  robots_content_usage  <LINE>  /a\n", 20) + "and 10 more: see --json\n",
		},
	} {
		s.SetRobots(testorigin.OK(tt.robots))
		runCommand(t.Context(), t, "", "refresh", "--gateway", g.Address(), s.Origin().String())
		got := show(tt.agent)
		if tt.name == "many" {
			got = regexp.MustCompile(`usage {2}\d+`).ReplaceAllString(got, "usage  <LINE>")
		}
		if got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}
