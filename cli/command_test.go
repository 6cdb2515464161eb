package cli_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/cobra"

	_ "github.com/crawlgate/crawlgate" // the modules of the gateway
	"github.com/crawlgate/crawlgate/cli"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/testgateway"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/internal/version"
)

// commandRun is the result of a command.
type commandRun struct {
	status   int
	out, err string
}

func TestMain(m *testing.M) { testgateway.Main(m) }

// runCommand runs `robots` with the given arguments in this process.
func runCommand(ctx context.Context, t *testing.T, stdin string, args ...string) commandRun {
	t.Helper()
	root, robots := &cobra.Command{Use: "crawlgate"}, &cobra.Command{Use: "robots"}
	cli.AddCommands(robots)
	root.AddCommand(robots)
	var out, stderr bytes.Buffer
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&stderr)
	root.SetArgs(append([]string{"robots"}, args...))
	run := commandRun{}
	if err := root.ExecuteContext(ctx); err != nil {
		status, ok := errors.AsType[*cli.ExitError](err)
		if !ok {
			t.Fatalf("%v ended with a %T: %v", args, err, err)
		}
		run.status = status.Code
		// Caddy's main function uses this type; it exits with 1 for every other error.
		if isCaddys := strings.Contains(fmt.Sprintf("%T", errors.Unwrap(err)), "exitError"); isCaddys != (status.Code > 1) {
			t.Errorf("Caddy does not get status %d from a %T", status.Code, errors.Unwrap(err))
		}
	}
	run.out, run.err = out.String(), stderr.String()
	for _, text := range []string{run.out, run.err} {
		if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%v writes unprintable text: %q", args, text[i:])
		}
	}
	return run
}

// variable has what differs between runs.
var variable = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "<TIME>"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "<SHA256>"},
	{regexp.MustCompile(`127\.0\.\d+\.\d+:\d+`), "<HOST>"},
	{regexp.MustCompile(`127\.0\.\d+\.\d+`), "<ADDRESS>"},
	{regexp.MustCompile(`/tmp/cg\d+`), "<DIR>"},
	{regexp.MustCompile(` {3,}`), "  "}, // column widths depend on the texts above
}

func golden(text string) string {
	for _, v := range variable {
		text = v.pattern.ReplaceAllString(text, v.name)
	}
	return text
}

// check compares a run with the wanted result.
func (r commandRun) check(t *testing.T, status int, out, err string) {
	t.Helper()
	if r.status != status || golden(r.out) != out || !strings.Contains(golden(r.err), err) || (err == "") != (r.err == "") {
		t.Errorf("got status %d\n%s\n%s\nwant %d\n%s\n%s", r.status, golden(r.out), golden(r.err), status, out, err)
	}
}

// saysNo is the output of `check` for a disallowed URL: `go run` only prints the exit status.
const saysNo = "exit status 1: something is disallowed\n"

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "robots.txt")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const sample = "User-agent: *\nDisallow: /private/\nAllow: /private/open\n\nUser-agent: Googlebot\nDisallow: /g/\nCrawl-delay: 5\n\n" +
	"User-agent: evil\nDisallow: /\x1b[31m\u202e/\n"

func TestCheckFile(t *testing.T) {
	t.Parallel()
	robots := file(t, sample)
	for _, tt := range []struct {
		name   string
		args   []string
		status int
		out    string
		err    string
	}{
		{
			"all allowed",
			[]string{"--agent", "a", "https://example.com/", "/page"},
			0,
			"VERDICT  REASON  LINE  RULE  GROUP  STATE  URL\n" +
				"allow  no_rule  *  rules  https://example.com/\n" +
				"allow  no_rule  *  rules  /page\n", "",
		},
		{
			"some disallowed",
			[]string{"--agent", "a", "/private/x", "/private/open"},
			1,
			"VERDICT  REASON  LINE  RULE  GROUP  STATE  URL\n" +
				"deny  disallowed  2  /private/  *  rules  /private/x\n" +
				"allow  allowed_by_rule  3  /private/open  *  rules  /private/open\n", saysNo,
		},
		{
			"a family",
			[]string{"--agent", "Googlebot-News", "/g/"},
			1,
			"VERDICT  REASON  LINE  RULE  GROUP  STATE  URL\ndeny  disallowed  6  /g/  Googlebot  rules  /g/\n", saysNo,
		},
		{
			"several tokens",
			[]string{"--agent", "nobody,googlebot", "/g/"},
			1,
			"VERDICT  REASON  LINE  RULE  GROUP  STATE  URL\ndeny  disallowed  6  /g/  Googlebot  rules  /g/\n", saysNo,
		},
		{
			"robots.txt itself",
			[]string{"--agent", "a", "/robots.txt"},
			0,
			"VERDICT  REASON  LINE  RULE  GROUP  STATE  URL\nallow  robots_txt_itself  unknown  /robots.txt\n", "",
		},
		{
			"foreign text is escaped",
			[]string{"--agent", "evil", "/%1B[31m%E2%80%AE/x"},
			1,
			"VERDICT  REASON  LINE  RULE  GROUP  STATE  URL\n" +
				`deny  disallowed  10  /\x1b[31m\xe2\x80\xae/  evil  rules  /%1B[31m%E2%80%AE/x` + "\n", saysNo,
		},
		{
			"a bad URL does not end it",
			[]string{"--agent", "a", "x", "/private/x", "http://%zz/"},
			2,
			"VERDICT  REASON  LINE  RULE  GROUP  STATE  URL\n" +
				"deny  disallowed  2  /private/  *  rules  /private/x\n", "http://%zz/: ",
		},
		{"only bad URLs", []string{"--agent", "a", "x"}, 2, "", "x: "},
		{"an agent with a version", []string{"--agent", "a/1.0", "/"}, 2, "", "not a product token"},
		{"an empty token", []string{"--agent", "a,", "/"}, 2, "", "not a product token"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			runCommand(t.Context(), t, "", append([]string{"check", "--robots", robots}, tt.args...)...).check(t, tt.status, tt.out, tt.err)
		})
	}
	t.Run("from standard input", func(t *testing.T) {
		t.Parallel()
		run := runCommand(t.Context(), t, sample, "check", "--robots", "-", "--agent", "a", "--json", "/private/x", "/")
		var records [2]enforce.LogRecord
		decoder := json.NewDecoder(strings.NewReader(run.out))
		decoder.DisallowUnknownFields()
		for i := range records {
			if err := decoder.Decode(&records[i]); err != nil {
				t.Fatal(err)
			}
		}
		if r := records[0]; run.status != 1 || r.Decision != "deny" || r.Line != 2 || r.Rule != "/private/" || r.Schema != 2 || len(r.SHA256) != 64 {
			t.Errorf("first record: got %+v", run)
		}
		if r := records[1]; r.Decision != "allow" {
			t.Errorf("second record: got %+v", r)
		}
	})
	t.Run("only the first 500 KiB count", func(t *testing.T) {
		t.Parallel()
		long := file(t, "User-agent: *\n"+strings.Repeat("# filler\n", 60_000)+"Disallow: /\n")
		if run := runCommand(t.Context(), t, "", "check", "--robots", long, "--agent", "a", "/"); run.status != 0 {
			t.Errorf("check with a long file: got %+v", run)
		}
	})
}

// TestCheckLive checks that a live check decides like a gateway, with one fetch per site, and uses
// the crawler's name.
func TestCheckLive(t *testing.T) {
	server := testorigin.Start(t, testorigin.Config{})
	s := server.Site(t, testorigin.SiteConfig{})
	check := func(args ...string) commandRun {
		return runCommand(t.Context(), t, "", append([]string{"check", "--allow-private", "127.0.0.0/8", "--agent", "AcmeBot,Acme"}, args...)...)
	}
	const head = "VERDICT  REASON  LINE  RULE  GROUP  STATE  URL\n"
	for _, tt := range []struct {
		behaviour testorigin.Behaviour
		status    int
		out       string
	}{
		{
			testorigin.OK("User-agent: acme\nDisallow: /a\n"), 1,
			head + "deny  disallowed  2  /a  acme  rules  http://<HOST>/a\nallow  no_rule  acme  rules  http://<HOST>/b\n",
		},
		{
			testorigin.Status(404), 0,
			head + "allow  absent  absent (status)  http://<HOST>/a\nallow  absent  absent (status)  http://<HOST>/b\n" +
				"http://<HOST>/robots.txt: absent (status), status 404\n",
		},
		{
			testorigin.Status(503), 1,
			head + "deny  unreachable  unreachable (status)  http://<HOST>/a\ndeny  unreachable  unreachable (status)  http://<HOST>/b\n" +
				"http://<HOST>/robots.txt: unreachable (status), status 503\n",
		},
		{
			testorigin.Refuse(), 1,
			head + "deny  unreachable  unreachable (connect)  http://<HOST>/a\ndeny  unreachable  unreachable (connect)  http://<HOST>/b\n" +
				"http://<HOST>/robots.txt: unreachable (connect), connection refused\n",
		},
	} {
		t.Run(tt.behaviour.Name, func(t *testing.T) {
			before := len(s.RobotsExchanges())
			s.SetRobots(tt.behaviour)
			says := ""
			if tt.status == 1 {
				says = saysNo
			}
			check(s.URL("/a"), s.URL("/b")).check(t, tt.status, tt.out, says)
			exchanges := s.RobotsExchanges()[before:]
			if len(exchanges) > 1 {
				t.Errorf("robots.txt was fetched %d times, want at most once", len(exchanges))
			}
			for _, x := range exchanges {
				if got := x.Header.Get("User-Agent"); got != version.UserAgent() {
					t.Errorf("robots.txt was fetched as %q, want the version's User-Agent", got)
				}
			}
		})
	}
	t.Run("the guard", func(t *testing.T) {
		run := runCommand(t.Context(), t, "", "check", "--agent", "a", s.URL("/a"))
		run.check(t, 1, head+"deny  forbidden_address  unknown  http://<HOST>/a\n"+
			"http://<HOST>/a: address <HOST> is not public (loopback)\n", saysNo)
	})
	t.Run("ended", func(t *testing.T) {
		s.SetRobots(testorigin.HangBeforeHead())
		before := len(s.RobotsExchanges())
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for len(s.RobotsExchanges()) == before {
				if ctx.Err() != nil {
					return
				}
			}
			cancel()
		}()
		runCommand(ctx, t, "", "check", "--allow-private", "127.0.0.0/8", "--agent", "a", s.URL("/a")).check(t, 2, "", "context canceled")
	})
}

// TestCheckAsTheCrawler checks that robots.txt of a site that refuses unknown clients is requested
// in the name of the crawler, by its first token.
func TestCheckAsTheCrawler(t *testing.T) {
	t.Parallel()
	var asked []string
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("User-Agent"))
		if len(asked) == 1 {
			w.WriteHeader(http.StatusForbidden)
		}
	}))
	defer site.Close()
	run := runCommand(t.Context(), t, "", "check", "--allow-private", "127.0.0.0/8", "--agent", "AcmeBot,Acme", "--json", site.URL+"/a")
	if want := []string{version.UserAgent(), "AcmeBot"}; run.status != 0 || !slices.Equal(asked, want) || !strings.Contains(run.out, `"fetched_as":"AcmeBot"`) {
		t.Errorf("asked as %q, want %q: %d %s%s", asked, want, run.status, run.out, run.err)
	}
}

func TestCheckQuestions(t *testing.T) {
	t.Parallel()
	robots := file(t, sample)
	questions := fmt.Sprintf(`{"id":1,"robots":"VXNlci1hZ2VudDogKgpEaXNhbGxvdzogL2EK","agent":"A","url":"https://example.com/a"}
{"id":"two","robots_file":%q,"agents":["nobody","Googlebot"],"url":"/g/"}
`, robots)
	answers := `{"id":1,"allowed":false,"rule":"/a","line":2,"group":"*"}
{"id":"two","allowed":false,"rule":"/g/","line":6,"group":"Googlebot"}
`
	list := file(t, questions)
	runCommand(t.Context(), t, questions, "check", "--jsonl").check(t, 0, answers, "")
	runCommand(t.Context(), t, questions, "check", "--jsonl", "-").check(t, 0, answers, "")
	runCommand(t.Context(), t, "", "check", "--jsonl", list).check(t, 0, answers, "")
	bad := runCommand(t.Context(), t, "no question\n"+questions, "check", "--jsonl")
	if bad.status != 2 || !strings.HasPrefix(bad.out, `{"id":null,"error":`) || !strings.HasSuffix(bad.out, answers) || bad.err != "" {
		t.Errorf("after a bad question: got %+v", bad)
	}
	runCommand(t.Context(), t, "", "check", "--jsonl", list+".missing").check(t, 2, "", "reading questions")
	runCommand(t.Context(), t, "", "check", "--jsonl", list, list).check(t, 2, "", "takes one file")
	runCommand(t.Context(), t, "", "check", "--jsonl", "--agent", "a").check(t, 2, "", "takes no other flag")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	runCommand(ended, t, questions, "check", "--jsonl").check(t, 2, "", "context canceled")
}

// TestCheckIndexHTML checks that a file is read according to RFC 9309 or, with --index-html, like
// Google's crawlers (docs/caddyfile.md, index_html).
func TestCheckIndexHTML(t *testing.T) {
	t.Parallel()
	const text = "User-agent: *\nDisallow: /\nAllow: /x/index.html\n"
	question := fmt.Sprintf(`{"id":1,"robots":%q,"agent":"a","url":"/x/"}`, base64.StdEncoding.EncodeToString([]byte(text)))
	args, robots := []string{"check", "--agent", "a", "--robots"}, file(t, text)
	const head, answer = "VERDICT  REASON  LINE  RULE  GROUP  STATE  URL\n", `{"id":1,"allowed":%v,"rule":%q,"line":%d,"group":"*"}` + "\n"
	runCommand(t.Context(), t, "", append(args, robots, "/x/")...).check(t, 1, head+"deny  disallowed  2  /  *  rules  /x/\n", saysNo)
	runCommand(t.Context(), t, "", append(args, robots, "--index-html", "/x/")...).check(t, 0,
		head+"allow  allowed_by_rule  3  /x/index.html  *  rules  /x/\n", "")
	runCommand(t.Context(), t, question, "check", "--jsonl").check(t, 0, fmt.Sprintf(answer, false, "/", 2), "")
	runCommand(t.Context(), t, question, "check", "--jsonl", "--index-html").check(t, 0, fmt.Sprintf(answer, true, "/x/index.html", 3), "")
	runCommand(t.Context(), t, "", "check", "--gateway", "x", "--agent", "a", "--index-html", "/x/").check(t, 2, "", "--index-html does not go with")
}

// TestCheckPaths checks a path as it is written and, with the flag, as servers resolve it.
func TestCheckPaths(t *testing.T) {
	t.Parallel()
	robots := file(t, sample)
	const head = "VERDICT  REASON  LINE  RULE  GROUP  STATE  URL\n"
	args := []string{"check", "--agent", "a", "--robots", robots}
	runCommand(t.Context(), t, "", append(args, "/x/../private/x", "/page")...).check(t, 0,
		head+"allow  no_rule (as_sent)  *  rules  /x/../private/x\nallow  no_rule  *  rules  /page\n", "")
	runCommand(t.Context(), t, "", append(args, "--paths", "strict", "/x/../private/x", "//page", "/private/../x")...).check(t, 1,
		head+"deny  disallowed (resolved)  2  /private/  *  rules  /x/../private/x\nallow  no_rule (both)  *  rules  //page\n"+
			"deny  disallowed (as_sent)  2  /private/  *  rules  /private/../x\n", saysNo)
	runCommand(t.Context(), t, "", append(args, "--paths", "both", "/")...).check(t, 2, "", `--paths "both": want strict, as_sent`)
	runCommand(t.Context(), t, "", "check", "--gateway", "x", "--agent", "a", "--paths", "strict", "/").check(t, 2, "", "--paths does not go with")

	var questions, asSent, strict strings.Builder
	for url, answers := range map[string][2]string{
		"/x/../private/x":                     {`"allowed":true,"rule":"","line":0,"group":"*"`, `"allowed":false,"rule":"/private/","line":2,"group":"*","form":"resolved"`},
		"https://example.com//private/x#y/..": {`"allowed":true,"rule":"","line":0,"group":"*"`, `"allowed":false,"rule":"/private/","line":2,"group":"*","form":"resolved"`},
		"https://example.com":                 {`"allowed":true,"rule":"","line":0,"group":"*"`, `"allowed":true,"rule":"","line":0,"group":"*","form":""`},
		"https://example.com?q=//":            {`"allowed":true,"rule":"","line":0,"group":"*"`, `"allowed":true,"rule":"","line":0,"group":"*","form":""`},
		"/private/../x":                       {`"allowed":false,"rule":"/private/","line":2,"group":"*"`, `"allowed":false,"rule":"/private/","line":2,"group":"*","form":"as_sent"`},
		"/x;y":                                {`"allowed":true,"rule":"","line":0,"group":"*"`, `"allowed":true,"rule":"","line":0,"group":"*","form":"both"`},
	} {
		fmt.Fprintf(&questions, `{"id":1,"robots_file":%q,"agent":"a","url":%q}`+"\n", robots, url)
		fmt.Fprintf(&asSent, "{\"id\":1,%s}\n", answers[0])
		fmt.Fprintf(&strict, "{\"id\":1,%s}\n", answers[1])
	}
	runCommand(t.Context(), t, questions.String(), "check", "--jsonl").check(t, 0, asSent.String(), "")
	runCommand(t.Context(), t, questions.String(), "check", "--jsonl", "--paths", "as_sent").check(t, 0, asSent.String(), "")
	runCommand(t.Context(), t, questions.String(), "check", "--jsonl", "--paths", "strict").check(t, 0, strict.String(), "")
	runCommand(t.Context(), t, "", "check", "--jsonl", "--paths", "x").check(t, 2, "", `--paths "x"`)
}

func TestLint(t *testing.T) {
	t.Parallel()
	good, bad := file(t, "User-agent: *\nDisallow: /a\n"), file(t, "User-agent: *\nDisallow: a\nfoo\x1b[2J: bar\nContent-Signal: ai-train=disallow\n")
	runCommand(t.Context(), t, "", "lint", good).check(t, 0, "", good+": no warnings\n")
	runCommand(t.Context(), t, "", "lint", "--json", good).check(t, 0, "", "")
	run := runCommand(t.Context(), t, "", "lint", bad)
	if run.err != "exit status 1: there are warnings\n" {
		t.Errorf("the error stream has %q", run.err)
	}
	for _, want := range []string{":2: path-without-slash: ", ":3: unknown-field: ", ":4: preference-value: "} {
		if run.status != 1 || strings.Count(run.out, bad+want) != 1 {
			t.Errorf("the output lacks %q: %+v", want, run)
		}
	}
	run = runCommand(t.Context(), t, "Disallow: /\n", "lint", "--json", "-")
	var w cli.LintWarning
	if err := json.Unmarshal([]byte(run.out), &w); err != nil || run.status != 1 || run.err != "" || w.File != "-" || w.Line != 1 || w.Code != "rule-outside-group" || w.Message == "" {
		t.Errorf("warning in JSON: error %v: %+v", err, run)
	}
	runCommand(t.Context(), t, "", "lint", good+".missing").check(t, 2, "", "no such file")
	runCommand(t.Context(), t, "", "lint").check(t, 2, "", "want one file or URL")
	runCommand(t.Context(), t, "", "lint", "--allow-private", "127.0.0.0/8", good).check(t, 2, "", "goes with a URL")

	s := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	s.SetRobots(testorigin.OK("Disallow: /\n"))
	live := func(url string) commandRun {
		return runCommand(t.Context(), t, "", "lint", "--allow-private", "127.0.0.0/8", url)
	}
	if run := live(s.URL("/robots.txt")); run.status != 1 || !strings.Contains(run.out, "/robots.txt:1: rule-outside-group: ") {
		t.Errorf("linting a live file: got %+v", run)
	}
	s.SetRobots(testorigin.Oversize("User-agent: *\nDisallow: /a\n", 600_000))
	if run := live(s.Origin().String()); run.status != 1 || !strings.Contains(run.out, ": too-large: ") {
		t.Errorf("linting a large live file: got %+v", run)
	}
	s.SetRobots(testorigin.Status(404))
	live(s.URL("/")).check(t, 2, "", "absent (status), status 404")
	live(s.URL("/page")).check(t, 2, "", "alone")
}

// TestGatewayCommands runs every command that asks a gateway.
func TestGatewayCommands(t *testing.T) {
	g := testgateway.New(t, "", "")
	server := testorigin.Start(t, testorigin.Config{})
	s := server.Site(t, testorigin.SiteConfig{})
	s.SetRobots(testorigin.OK(testgateway.RulesA))
	run := func(name string, args ...string) commandRun {
		t.Helper()
		return runCommand(t.Context(), t, "", append([]string{name, "--gateway", g.Address()}, args...)...)
	}
	o := s.Origin().String()

	run("origins").check(t, 0, "", "")
	run("show", o).check(t, 1, "", "nothing is known about http://<HOST>")
	gateway := func(args ...string) commandRun {
		t.Helper()
		return runCommand(t.Context(), t, "", append([]string{"check", "--gateway", g.Address()}, args...)...)
	}
	gateway("--agent", "alpha", s.URL("/page"), s.URL("/private/x")).check(t, 1,
		"VERDICT  REASON  LINE  RULE  GROUP  STATE  URL\n"+
			"allow  no_rule  *  rules  http://<HOST>/page\n"+
			"deny  disallowed  2  /private/  *  rules  http://<HOST>/private/x\n", saysNo)
	gateway("--agent", "alpha", "--site", ":99", s.URL("/page")).check(t, 2, "", "has no gateway")
	gateway("--agent", "a,b", s.URL("/page")).check(t, 2, "", "one name")
	if r := gateway("--agent", "alpha", "--json", s.URL("/private/x")); r.status != 1 || r.err != "" || !strings.Contains(r.out, `"reason":"disallowed"`) {
		t.Errorf("check by the gateway: got %+v", r)
	}

	run("origins").check(t, 0, "ORIGIN  STATE  STATUS  FETCHED  FRESH UNTIL  UNREACHABLE SINCE  NEXT ATTEMPT\nhttp://<HOST>  rules  200  <TIME>  <TIME>\n", "")
	run("origins", "--state", "absent").check(t, 0, "", "")
	run("origins", "--state", "none").check(t, 2, "", "want rules, absent, unreachable")
	if r := run("origins", "--json"); r.status != 0 || !strings.Contains(r.out, `"state":"rules"`) {
		t.Errorf("origins --json: got %+v", r)
	}
	s.SetRobots(testorigin.OK(testgateway.RulesB))
	run("refresh", o, "shop example", o+"/page").check(t, 2, "http://<HOST> rules\nhttp://<HOST> rules\n", "shop example: host ")
	run("show", o).check(t, 0, "origin  http://<HOST>\nrobots.txt  http://<HOST>/robots.txt\nstate  rules\naccess  rules\nstatus  200\n"+
		"sha256  <SHA256>\nfetched  <TIME>\nfresh until  <TIME>\n\n"+
		"FIRST SEEN  LAST SEEN  KEPT UNTIL  STATE  STATUS  SIZE  SHA256\n"+
		fmt.Sprintf("<TIME>  <TIME>  <TIME>  rules  200  %d  <SHA256>\n", len(testgateway.RulesB))+
		fmt.Sprintf("<TIME>  <TIME>  <TIME>  rules  200  %d  <SHA256>\n", len(testgateway.RulesA)), "")
	run("show", "--diff", o).check(t, 0, "--- http://<HOST>/robots.txt <TIME> <SHA256>\n+++ http://<HOST>/robots.txt <TIME> <SHA256>\n"+
		"@@ -1,2 +1,4 @@\n User-agent: *\n Disallow: /private/\n+Disallow: /new/\n"+`+# \x1b[2J\xff`+"\n", "")
	s.SetRobots(testorigin.Status(500))
	run("refresh", o).check(t, 1, "http://<HOST> rules; the fetch failed: status 500\n", "")
	if r := run("show", o); !strings.Contains(r.out, "unreachable since") || !strings.Contains(r.out, "last failure") || !strings.Contains(r.out, "next attempt") {
		t.Errorf("show of an unreachable origin: got %+v", r)
	}
	run("purge", o+"/page").check(t, 2, "", "alone")
	run("purge", strings.TrimPrefix(o, "http://"), o).check(t, 1, "http://<HOST> purged\nhttp://<HOST> was not known\n", "")
	if r := run("purge", "--json", o); !strings.Contains(r.out, `"known":false`) {
		t.Errorf("second purge: got %+v", r)
	}
}

func TestOrderCommands(t *testing.T) {
	g := testgateway.New(t, "", "")
	server := testorigin.Start(t, testorigin.Config{})
	s := server.Site(t, testorigin.SiteConfig{})
	s.SetPages(testorigin.Respond(testorigin.Response{Status: 503, Header: http.Header{"Retry-After": {"3600"}}}))
	run := func(name string, args ...string) commandRun {
		t.Helper()
		return runCommand(t.Context(), t, "", append([]string{name, "--gateway", g.Address()}, args...)...)
	}
	run("deny").check(t, 0, "nothing is stopped\n", "")
	run("deny", "host", "Example.COM", "--by", "dora", "--reason", "complaint 7").check(t, 0,
		"stopped: host example.com, by dora, because: complaint 7; 0 under way were cut off\n", "")
	run("deny").check(t, 0, "SCOPE  VALUE  SINCE  BY  REASON\nhost  example.com  <TIME>  dora  complaint 7\n", "")
	if r := run("deny", "--json"); !strings.Contains(r.out, `"value":"example.com"`) {
		t.Errorf("deny --json: got %+v", r)
	}
	runCommand(t.Context(), t, "", "check", "--gateway", g.Address(), "--agent", "a", "https://example.com/").check(t, 1,
		"VERDICT  REASON  LINE  RULE  GROUP  STATE  URL\ndeny  kill_switch  unknown  https://example.com/\n", saysNo)
	this, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	if r := run("deny", "agent", "a"); r.status != 0 || !strings.Contains(r.out, "by "+this.Username) {
		t.Errorf("an order without a name: got %+v, want the user's", r)
	}
	run("undeny", "agent", "a").check(t, 0, golden("lifted by "+this.Username+": stop of agent a, by "+this.Username)+"\n", "")
	run("undeny", "agent", "a").check(t, 1, "", "there is no such order: agent a; stopped: host example.com")
	run("unblock", "nope.example").check(t, 1, "", "is not blocked")
	run("undeny", "host", "example.com", "--by", "eve").check(t, 0, "lifted by eve: stop of host example.com, by dora, because: complaint 7\n", "")
	run("deny", "host").check(t, 2, "", "want all, host PATTERN, agent NAME or agent@host NAME@PATTERN")
	run("deny", "all", "x").check(t, 2, "", "want all, host PATTERN, agent NAME or agent@host NAME@PATTERN")
	run("deny", "--reason", "x").check(t, 2, "", "go with an order")
	run("deny", "host", "https://example.com").check(t, 2, "", "host")
	run("undeny").check(t, 2, "", "want all, host PATTERN, agent NAME or agent@host NAME@PATTERN")

	run("clocks").check(t, 0, "0 clocks, 0 requests waiting, 0 clocks blocked\n", "")
	runCommand(t.Context(), t, "", "clocks", "--address", g.Address()).check(t, 0, "0 clocks, 0 requests waiting, 0 clocks blocked\n", "") // its former name
	g.Visit(s.URL("/page"), "alpha")
	r := run("clocks")
	r.out = regexp.MustCompile(`(59m5\d|1h0m0)(\.\d)?s`).ReplaceAllString(r.out, "<SPAN>")
	r.check(t, 0, "1 clocks, 0 requests waiting, 1 clocks blocked\nCLOCK  NEXT IN  DELAY  IN FLIGHT  QUEUE  BLOCKED FOR  STRIKES\n<ADDRESS>  <SPAN>  -  <SPAN>\n", "")
	run("clocks", "--key", "example.com").check(t, 0, "1 clocks, 0 requests waiting, 1 clocks blocked\n", "")
	run("clocks", "--state", "busy").check(t, 0, "1 clocks, 0 requests waiting, 1 clocks blocked\n", "")
	run("clocks", "--state", "x").check(t, 2, "", "want blocked, waiting or busy")
	run("clocks", "--limit", "0").check(t, 2, "", "from 1 to 1000")
}

// TestEndpoint checks that without a flag, commands ask the gateway of the environment, of the
// packages or of Caddy's default, in this order, and that check decides by itself if a flag says
// how.
func TestEndpoint(t *testing.T) {
	g := testgateway.New(t, "agent acme-news\nagent acme-shop", "")
	t.Setenv("SUDO_USER", "")
	t.Setenv("CRAWLGATE_GATEWAY", "")
	socket := packaged(t)
	for config, want := range map[string]string{
		"": caddy.DefaultAdminListen, "{\n\tadmin localhost:2019\n}\n": caddy.DefaultAdminListen, "{\n\tadmin unix/" + socket + "|0660\n}\n": "unix/" + socket,
	} {
		if err := os.WriteFile(*cli.PackagedConfig, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := cli.Endpoint(""); got != want {
			t.Errorf("no socket, and the Caddyfile %q: %s, want %s", config, got, want)
		}
	}
	if err := os.Remove(*cli.PackagedConfig); err != nil {
		t.Fatal(err)
	}
	if got := cli.Endpoint(""); got != caddy.DefaultAdminListen {
		t.Errorf("Endpoint without flag and environment = %s", got)
	}
	if err := os.Symlink(strings.TrimPrefix(g.Address(), "unix/"), socket); err != nil {
		t.Fatal(err)
	}
	runCommand(t.Context(), t, "", "deny").check(t, 0, "nothing is stopped\n", "")
	t.Setenv("CRAWLGATE_GATEWAY", "unix//nowhere/admin.sock")
	runCommand(t.Context(), t, "", "deny").check(t, 2, "", "asking the gateway at unix//nowhere/admin.sock: ")
	runCommand(t.Context(), t, "", "deny", "--gateway", g.Address()).check(t, 0, "nothing is stopped\n", "")
	runCommand(t.Context(), t, "", "check", "--agent", "a", "--robots", file(t, sample), "/").check(t, 0,
		"VERDICT  REASON  LINE  RULE  GROUP  STATE  URL\nallow  no_rule  *  rules  /\n", "")
	for _, args := range [][]string{{"check", "--agent", "a", "https://example.com/"}, {"audit", file(t, "{}\n")}} {
		if r := runCommand(t.Context(), t, "", args...); r.status != 2 || !strings.Contains(r.err, "asking the gateway at unix//nowhere/") {
			t.Errorf("%q: got %+v, want the address that was asked", args, r)
		}
	}
}

// TestCompletion checks that a shell offers the gateway's names, and nothing without a gateway.
func TestCompletion(t *testing.T) {
	g := testgateway.New(t, "agent acme-news\nagent acme-shop", "")
	s := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	s.SetRobots(testorigin.OK(testgateway.RulesA))
	g.Visit(s.URL("/"), "acme-news")
	runCommand(t.Context(), t, "", "deny", "--gateway", g.Address(), "host", "held.example")
	host := s.Origin().Authority()
	for _, tt := range []struct{ args, want string }{
		{"show ", host},
		{"show 127.", host},
		{"show http", s.Origin().String()},
		{"show https:", ""},
		{"show 128.", ""},
		{"purge ", host},
		{"refresh ", host},
		{"sitemaps ", host},
		{"deny ", "all host agent agent@host"},
		{"deny h", "host"},
		{"deny host ", host},
		{"deny agent ", "acme-news acme-shop"},
		{"deny agent acme-s", "acme-shop"},
		{"undeny ", "host"},
		{"allow ", host},
		{"allow --agent ", "acme-news acme-shop"},
		{"undeny host ", "held.example"},
		{"unblock ", ""},
		{"show --agent ", "acme-news acme-shop"},
		{"check --agent acme-n", "acme-news"},
	} {
		args := strings.Split(tt.args, " ")
		got := complete(t, append([]string{args[0], "--gateway", g.Address()}, args[1:]...)...)
		if got != tt.want {
			t.Errorf("%q: %q, want %q", tt.args, got, tt.want)
		}
	}
	if got := complete(t, "show", "--gateway", "unix//nowhere/admin.sock", ""); got != "" {
		t.Errorf("completion without a gateway = %q, want none", got)
	}
}

// complete returns the words that a shell would offer.
func complete(t *testing.T, args ...string) string {
	t.Helper()
	root, robots := &cobra.Command{Use: "crawlgate"}, &cobra.Command{Use: "robots"}
	cli.AddCommands(robots)
	root.AddCommand(robots)
	var out, stderr bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&stderr)
	root.SetArgs(append([]string{"__completeNoDesc", "robots"}, args...))
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text := strings.TrimSpace(stderr.String()); text != "Completion ended with directive: ShellCompDirectiveNoFileComp" {
		t.Errorf("completion of %q writes to the error stream: %s", args, text)
	}
	words, directive, _ := strings.Cut("\n"+out.String(), "\n:")
	if directive != "4\n" {
		t.Errorf("completion of %q: got directive %q, want 4", args, directive)
	}
	return strings.Join(strings.Fields(words), " ")
}

// TestCommandUsage checks that invalid arguments are refused, on the error stream, with status 2.
func TestCommandUsage(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ args, err string }{
		{"nothing", `unknown command "nothing"`},
		{"stop agent AcmeBot", `unknown command "stop": type crawlgate robots deny or show or --help`},
		{"lift agent AcmeBot", "undeny or --help"},
		{"check", "no URL is given"},
		{"check /x", "no --agent is given"},
		{"check --agent a --robots x --gateway y /", "exclude each other"},
		{"check --agent a --robots x --allow-private 10.0.0.0/8 /", "exclude each other"},
		{"check --agent a --gateway x --allow-private 10.0.0.0/8 /", "exclude each other"},
		{"check --agent a --site x /", "goes with --gateway"},
		{"check --agent a --robots /nowhere/robots.txt /", "no such file"},
		{"check --agent a --allow-private x https://example.com/", "not an address range"},
		{"check --agent a --allow-private 10.0.0.1/8 https://example.com/", "bits set"},
		{"check --agent a --gateway unix: https://example.com/", "address"},
		{"check --unknown", "unknown flag"},
		{"lint --json=maybe x", "invalid argument"},
		{"origins x", "want no argument"},
		{"origins --limit -1", "a limit of at least 0"},
		{"origins --address http://localhost:2019/config/", "scheme, host and port alone"},
		{"origins --address localhost:1-5", "want host:port"},
		{"origins --address udp/localhost:1", "want host:port"},
		{"show", "want one origin"},
		{"show a b", "want one origin"},
		{"purge", "want at least one argument"},
		{"refresh", "want at least one argument"},
		{"clocks x", "takes no argument"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			t.Parallel()
			run := runCommand(t.Context(), t, "", strings.Fields(tt.args)...)
			run.check(t, 2, "", tt.err)
			if !strings.HasPrefix(run.err, "crawlgate robots") {
				t.Errorf("the message does not begin with the program's name: %s", run.err)
			}
		})
	}
	if run := runCommand(t.Context(), t, ""); run.status != 0 || !strings.Contains(run.out, "undeny") {
		t.Errorf("without arguments: got %+v", run)
	}
}

// TestAdminClient checks the errors of commands for an endpoint that is not a gateway.
func TestAdminClient(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		handler http.HandlerFunc
		want    string
	}{
		{"not ours", http.NotFound, "there is no gateway at this address"},
		{"text", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "\x1b[2Jbusy", 500) }, `the gateway answers 500: \x1b[2Jbusy`},
		{"no JSON", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>") }, "reading the answer"},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) }, "the gateway answers 302"},
		{"an error", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(400)
			fmt.Fprint(w, `{"error":"no \u001b[2J"}`)
		}, `no \x1b[2J`},
		{"without end", func(w http.ResponseWriter, _ *http.Request) {
			for block := make([]byte, 1<<20); ; {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		}, "more than 67108864 bytes"},
		{"cut", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "{")
		}, "unexpected EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(tt.handler)
			defer server.Close()
			for _, address := range []string{server.URL, strings.TrimPrefix(server.URL, "http://"), server.URL + "/"} {
				runCommand(t.Context(), t, "", "clocks", "--gateway", address).check(t, 2, "", tt.want)
			}
		})
	}
	runCommand(t.Context(), t, "", "clocks", "--gateway", "unix//nowhere/admin.sock").check(t, 2, "", "no such file")
}

// full is a writer of a full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left") }

// TestOutputFails checks that an answer that cannot be written is an error, whatever its content.
func TestOutputFails(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"check", "--robots", "-", "--agent", "a", "/"},
		{"check", "--robots", "-", "--agent", "a", "--json", "/"},
		{"check", "--jsonl"},
		{"lint", "-"},
		{"report", "-"},
		{"report", "--format", "json", "-"},
	} {
		root, robots := &cobra.Command{Use: "crawlgate"}, &cobra.Command{Use: "robots"}
		cli.AddCommands(robots)
		root.AddCommand(robots)
		var stderr bytes.Buffer
		root.SetIn(strings.NewReader("User-agent: *\nDisallow: /\n{}\n"))
		root.SetOut(full{})
		root.SetErr(&stderr)
		root.SetArgs(append([]string{"robots"}, args...))
		end, ok := errors.AsType[*cli.ExitError](root.Execute())
		if !ok || end.Code != 2 || strings.Count(stderr.String(), "no space left") != 1 || strings.Contains(stderr.String(), "exit status 1") {
			t.Errorf("%v with a full disk: got %v with error stream %q", args, end, &stderr)
		}
	}
}
