package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/internal/testgateway"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// mistyped are commands with invalid arguments, and what the message says to type instead.
// Arguments are separated by blanks, and shop_example stands for one that contains a blank.
var mistyped = map[string][][2]string{
	"check": {
		{"", "usage: crawlgate robots check ["},
		{"/x", "no --agent is given"},
		{"--agent acme-news", "no URL is given"},
		{"--agnt acme-news https://shop.example/", "is --agent meant?"},
		{"--agent acme-news shop.example", "want a URL such as https://example.com/page"},
		{"--agent acme/1.0 --paths strict https://shop.example/", "want a single word without a version"},
		{"--agent a --robots none.txt /", "open none.txt: no such file"},
		{"--agent a --paths sloppy /", "want strict, as_sent"},
		{"--agent a --purpose tarin-ai --preferences maybe https://shop.example/", "log, deny"},
		{"--agent a --robots x --allow-private 10.0.0.0/8 /", "exclude each other"},
		{"--agent a --allow-private 10.0.0.1/8 https://shop.example/", "10.0.0.0/8"},
		{"--gateway {gateway} --agent acme-nwes https://shop.example/", "near it is acme-news"},
		{"--gateway {gateway} --agent acme-news shop.example", "want a URL such as https://"},
		{"--gateway {gateway} --site :99 --agent acme-news https://shop.example/", "there is unix/"},
	},
	"show": {
		{"", "usage: crawlgate robots show ["},
		{"a b", "want one origin"},
		{"--dif a", "is --diff meant?"},
		{"{host}", "say which one is meant: http://{host}"},
		{"shop.example", "name a new site by its URL, such as https://shop.example"},
		{"shop_example", "want a host such as example.com"},
		{"https:/shop.example", "or a URL such as https://example.com"},
		{"gopher://shop.example", "http, https, ftp"},
		{"--agent acme-nwes {url}", "near it is acme-news"},
		{"--site :1 {url}", "--site is for --agent"},
		{"--diff {url}", "no earlier text of {url} is kept"},
		{"--gatway x {url}", "is --gateway meant?"},
		{"--gateway localhost {url}", "want host:port, unix//path or a URL"},
	},
	"sitemaps": {
		{"", "want one origin, or --known"},
		{"--knwon", "is --known meant?"},
		{"a b", "usage: crawlgate robots sitemaps"},
		{"--known a", "want one origin, or --known"},
		{"{host}", "say which one is meant: http://{host}"},
		{"shop.example", "such as https://shop.example"},
		{"shop_example", "want a host such as example.com"},
		{"--site :1 {url}", "--site is for --agent"},
		{"--agent acme-nwes {url}", "near it is acme-news"},
		{"--json=maybe {url}", "usage: crawlgate robots sitemaps"},
	},
	"purge": {
		{"", "want at least one argument"},
		{"{host}", "say which one is meant: http://{host}"},
		{"shop.example", "such as https://shop.example"},
		{"https://shop.example/page", "as in https://shop.example"},
		{"https://shop.example/?q", "as in https://shop.example"},
		{"https://", "host is empty: want a host"},
		{"shop_example", "want a host such as example.com"},
		{"shop.example:http", "want a host such as example.com"},
		{"--al shop.example", "usage: crawlgate robots purge ORIGIN..."},
		{"--jsn {url}", "is --json meant?"},
	},
	"refresh": {
		{"", "want at least one argument"},
		{"{host}", "say which one is meant: http://{host}"},
		{"shop.example", "such as https://shop.example"},
		{"https://a:b@shop.example", "userinfo"},
		{"2001:db8::1", "is IPv6 without brackets"},
		{"https://shop_/", "a byte that no host name has"},
		{"shop.example:0", "want a host such as example.com"},
		{"http//shop.example", "want a host such as example.com"},
		{"--force {url}", "usage: crawlgate robots refresh ORIGIN..."},
		{"--gatewa x {url}", "usage: crawlgate robots refresh"},
	},
	"deny": {
		{"host", "want all, host PATTERN, agent NAME or agent@host NAME@PATTERN"},
		{"shop.example", "want all, host PATTERN, agent NAME or agent@host NAME@PATTERN"},
		{"all everything", "usage: crawlgate robots deny [all"},
		{"hots shop.example", "want all, host PATTERN, agent NAME or agent@host NAME@PATTERN"},
		{"host https://shop.example", "want the host alone"},
		{"host .shop.example", "write shop.example, *.shop.example or both"},
		{"host 10.0.0.0/8", "ranges are for the address guard"},
		{"host shop.*", "may have * only at its start"},
		{"agent acme-nwes", "near it is acme-news"},
		{"--reason x", "go with an order"},
		{"all --resaon x", "is --reason meant?"},
	},
	"undeny": {
		{"", "want all, host PATTERN, agent NAME or agent@host NAME@PATTERN"},
		{"everything", "want all, host PATTERN, agent NAME or agent@host NAME@PATTERN"},
		{"all", "stopped: host held.example"},
		{"host shop.example", "stopped: host held.example"},
		{"agent acme-news", "stopped: host held.example"},
		{"host held.exmaple", "stopped: host held.example"},
		{"host https://held.example", "want the host alone"},
		{"held.example", "usage: crawlgate robots undeny all |"},
		{"allow acme-news held.example", "or allow 'NAME@PATTERN [PATH]...'"},
		{"allow acme-news@held.example", "there is no such order: allow acme-news@held.example; stopped: host held.example"},
		{"host", "want all, host PATTERN, agent NAME or agent@host NAME@PATTERN"},
		{"all --reason x", "usage: crawlgate robots undeny all | host PATTERN | agent NAME | agent@host NAME@PATTERN | allow 'NAME@PATTERN [PATH]...' [--by WHO]"},
	},
	"allow": {
		{"", "want one host, --agent, --until, --by and --ticket"},
		{"shop.example --agent acme-news --until 2099-01-01 --by ada", "usage: crawlgate robots allow HOST --agent NAME"},
		{"a b --agent acme-news --until 2099-01-01 --by ada --ticket T-1", "want one host, --agent"},
		{"shop.example --agent acme-nwes --until {soon} --by ada --ticket T-1", "no agent \"acme-nwes\" is configured: near it is acme-news"},
		{"https://shop.example --agent acme-news --until {soon} --by ada --ticket T-1", "want the host alone"},
		{"10.0.0.0/8 --agent acme-news --until {soon} --by ada --ticket T-1", "ranges are for the address guard"},
		{"shop.example --agent acme-news --until tomorrow --by ada --ticket T-1", "want a date such as 2026-12-31"},
		{"shop.example --agent acme-news --until 2020-01-01 --by ada --ticket T-1", "is over"},
		{"shop.example --agent acme-news --until 2099-01-01 --by ada --ticket T-1", "lasts 30 days at most, until 20"},
		{"shop.example --agent acme-news --path feed --until {soon} --by ada --ticket T-1", "does not start with a slash"},
		{"shop.example --agent acme-news --path /a* --until {soon} --by ada --ticket T-1", "want a plain prefix"},
		{"shop.example --agent acme-news --path /a/../b --until {soon} --by ada --ticket T-1", "servers resolve it to"},
		{"shop.example --agnet acme-news", "is --agent meant?"},
		{"shop.example --agent acme-news --until {soon} --by ada --ticket={tab}", "are lines of up to 200 bytes"},
	},
	"unblock": {
		{"", "want at least one argument"},
		{"shop.example", "clocks --state blocked lists"},
		{"https://shop.example/x", "clocks --state blocked lists"},
		{"shop_example", "clocks --state blocked lists"},
		{"--all", "usage: crawlgate robots unblock HOST..."},
		{"--jsno shop.example", "is --json meant?"},
		{"--gateway x shop.example", "want host:port"},
		{"--gateway=unix//none.sock x", "name its admin endpoint by --gateway"},
		{"--key shop.example", "usage: crawlgate robots unblock HOST..."},
		{"--gateway=localhost:1 x", "CRAWLGATE_GATEWAY"},
	},
	"clocks": {
		{"shop.example", "usage: crawlgate robots clocks [--key KEY"},
		{"--state blokced", "want blocked, waiting or busy"},
		{"--limit 0", "from 1 to 1000"},
		{"--limit many", "[--limit N]"},
		{"--limit 2000", "from 1 to 1000"},
		{"--sate blocked", "is --state meant?"},
		{"--kye x", "[--key KEY"},
		{"blocked", "--state STATE"},
		{"--key", "[--key KEY"},
		{"--gateway udp/localhost:1", "want host:port, unix//path or a URL"},
	},
	"origins": {
		{"shop.example", "usage: crawlgate robots origins [--state"},
		{"--state unreachabel", "want rules, absent, unreachable"},
		{"--limit -1", "a limit of at least 0"},
		{"--limit ten", "[--limit N]"},
		{"--stat rules", "is --state meant?"},
		{"--host shop.example", "usage: crawlgate robots origins"},
		{"--after", "[--after ORIGIN]"},
		{"rules", "[--state rules|absent|unreachable]"},
		{"--gateway http://localhost:2019/config/", "scheme, host and port alone, such as http://localhost:2019"},
		{"--gateway localhost:1-5", "want host:port"},
	},
	"lint": {
		{"", "want one file or URL"},
		{"a b", "usage: crawlgate robots lint [--json] FILE|URL"},
		{"none.txt", "no such file"},
		{"https://shop.example/page", "as in https://shop.example"},
		{"--jsno x", "is --json meant?"},
		{"--allow-private 10.0.0.0/8 none.txt", "goes with a URL"},
		{"--allow-private all https://shop.example", "not an address range"},
		{"https://", "host is empty"},
		{"--json=maybe x", "usage: crawlgate robots lint"},
		{"gopher://x", "http, https, ftp"},
	},
	"audit": {
		{"", "usage: crawlgate robots audit ["},
		{"none.log", "no such file"},
		{"--store a --gateway b LOG", "exclude each other"},
		{"--store none.db LOG", "none.db"},
		{"--gateway=unix//none.sock LOG", "name its admin endpoint"},
		{"--tolerance -1s LOG", "no time may be below 0"},
		{"--tolerance fast LOG", "usage: crawlgate robots audit"},
		{"--vkey x LOG", "are for --seal"},
		{"--stroe x LOG", "is --store meant?"},
		{"--gateway localhost LOG", "want host:port"},
	},
	"report": {
		{"", "no access log is given"},
		{"none.log", "no such file"},
		{"--format pdf LOG", "want text, json, csv or html"},
		{"--from yesterday LOG", "want a day such as 2026-11-23"},
		{"--to 1.12. LOG", "want a day such as 2026-11-23"},
		{"--form x LOG", "is --format meant?"},
		{"--team a LOG", "usage: crawlgate robots report"},
		{"--gateway x LOG", "usage: crawlgate robots report"},
		{"--agent", "usage: crawlgate robots report"},
		{"--json=maybe LOG", "usage: crawlgate robots report"},
	},
	"why": {
		{"", "want an access log"},
		{"--limit 0 LOG", "a limit above 0"},
		{"none.log", "no such file"},
		{"--host https://shop.example LOG", "want the host alone"},
		{"--host .shop.example LOG", "write shop.example, *.shop.example or both"},
		{"LOG:1 LOG", "give it alone"},
		{"LOG:999", "there is no such line about a request"},
		{"--url nothing LOG", "there is no such line about a request"},
		{"--limit three LOG", "usage: crawlgate robots why"},
		{"--ulr x LOG", "[--url URL]"},
	},
	"simulate": {
		{"", "no --config is given: it names the Caddyfile"},
		{"LOG", "usage: crawlgate robots simulate --config FILE"},
		{"--config none LOG", "--config none: open none: no such file"},
		{"--confg x LOG", "is --config meant?"},
		{"--config LOG LOG", "--config LOG: "},
		{"--config EMPTY.json LOG", "want one site with the directive robots"},
		{"--config EMPTY.json --site :1 LOG", "want one site with the directive robots"},
		{"--config=", "no --config is given"},
		{"--json=maybe", "usage: crawlgate robots simulate"},
		{"--redcated x", "is --redacted meant?"},
	},
	"keygen": {
		{"", "usage: crawlgate robots keygen ["},
		{"a b", "want one file"},
		{"--after 0s a.jwk", "want a time above 0"},
		{"--after -1h a.jwk", "want a time above 0"},
		{"--after soon a.jwk", "usage: crawlgate robots keygen"},
		{"--aftr 1h a.jwk", "is --after meant?"},
		{"LOG", "LOG: reading keys: it has no keys"},
		{"EMPTY.json", "EMPTY.json: reading keys: it has no keys"},
		{"none/a.jwk", "open none/a.jwk"},
		{"ROTATED.jwk", "begins to sign at"},
	},
	"keys": {
		{"", "usage: crawlgate robots keys FILE|AGENT"},
		{"a b", "want one file or agent"},
		{"LOG", "LOG: reading keys: it has no keys"},
		{"none/a.jwk", "there is no file none/a.jwk"},
		{"acme-news", "no agent of this name signs"},
		{"acme-sgner", "near it is acme-signer"},
		{"--jsno acme-signer", "is --json meant?"},
		{"--gateway localhost acme-signer", "want host:port"},
		{"--gatewy x acme-signer", "is --gateway meant?"},
		{"--json=maybe acme-signer", "usage: crawlgate robots keys"},
	},
	"evidence": {
		{"", "want key, head, or prove with the number of a line"},
		{"keys", "want key, head, or prove"},
		{"prove", "usage: crawlgate robots evidence key|head|prove SEQ"},
		{"key 1", "want key, head, or prove"},
		{"head --state none", "none"},
		{"head --gateway {gateway} --name acess", "seals no log"},
		{"prove first --state none", "none"},
		{"--sate x key", "is --state meant?"},
		{"key --generation first", "[--generation N]"},
		{"key --gateway localhost", "want host:port"},
	},
}

// TestMistyped checks that the message about a wrong command says what to type.
func TestMistyped(t *testing.T) {
	dir := t.TempDir()
	rotated := filepath.Join(dir, "ROTATED.jwk")
	for range 2 {
		runCommand(t.Context(), t, "", "keygen", rotated)
	}
	g := testgateway.New(t, "agent acme-news\nagent acme-shop\nagent acme-signer {\nsign {\nkeys "+rotated+"\ndirectory https://bot.example\n}\n}", "")
	s := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	s.SetRobots(testorigin.OK(testgateway.RulesA))
	host, _, _ := strings.Cut(s.Origin().Authority(), ":")
	g.Visit(s.URL("/"), "acme-news")
	g.Visit(fmt.Sprintf("http://%s:%d/", host, testorigin.ReservePort(t)), "acme-news")
	runCommand(t.Context(), t, "", "deny", "--gateway", g.Address(), "host", "held.example").check(t, 0, "stopped: host held.example, by root; 0 under way were cut off\n", "")
	for name, text := range map[string]string{"LOG": "{}\n", "EMPTY.json": "{}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	t.Setenv("CRAWLGATE_GATEWAY", g.Address())
	names := strings.NewReplacer("{gateway}", g.Address(), "{host}", host, "{url}", s.Origin().String(), "{tab}", "a\tb", "{soon}", time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	for command, ways := range mistyped {
		for _, way := range ways {
			args := []string{command}
			for arg := range strings.FieldsSeq(way[0]) {
				if strings.Contains(arg, "shop_") {
					arg = strings.ReplaceAll(arg, "_", " ")
				}
				args = append(args, names.Replace(arg))
			}
			want := names.Replace(way[1])
			run := runCommand(t.Context(), t, "", args...)
			if run.status == 0 || !strings.Contains(run.err, want) || strings.Contains(run.err, "origin: ") {
				t.Errorf("%q: got status %d and a message without %q: %s%s", args, run.status, want, run.out, run.err)
			}
		}
		if len(ways) < 10 {
			t.Errorf("%s is mistyped in only %d ways, want at least 10", command, len(ways))
		}
	}
}
