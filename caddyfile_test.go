package crawlgate

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
)

// adapt converts a Caddyfile to JSON like `crawlgate adapt`.
func adapt(text, filename string) ([]byte, []caddyconfig.Warning, error) {
	return caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": filename})
}

// validate provisions a configuration like `crawlgate validate`.
func validate(config []byte) error {
	var c caddy.Config
	if err := json.Unmarshal(config, &c); err != nil {
		return err
	}
	return caddy.Validate(&c)
}

// badLines is a mistake in a block, with its error message and the line of the Caddyfile that the
// message names. The block begins at line 3.
type badLines struct {
	lines string
	line  int
	err   string
}

func (b badLines) check(t *testing.T, before string) {
	t.Helper()
	text := before + "{\n\trobots {\n" + b.lines + "\n\t}\n}\n"
	_, _, err := adapt(text, "Caddyfile")
	if want := fmt.Sprintf("parsing caddyfile tokens for 'robots': %s, at Caddyfile:%d", b.err, b.line); err == nil || err.Error() != want {
		t.Errorf("%s\n got %v\nwant %s", text, err, want)
	}
}

// TestBadEngine checks the error for each mistake in the global option.
func TestBadEngine(t *testing.T) {
	t.Parallel()
	for _, b := range []badLines{
		{"speed fast", 3, `unknown option "speed" in robots: want one of allow_for, cache, egress, fetch, fleet, gateway, help, index_html, limits, pace, redact, redis, signals, store, unlogged, user_agent`},
		{"user_agent A\nuser_agent B", 4, `option "user_agent" of robots is given twice`},
		{"user_agent", 3, `option "user_agent" of robots takes 1 argument, found 0`},
		{"user_agent two words", 3, `option "user_agent" of robots takes 1 argument, found 2; quote a text with spaces`},
		{"user_agent \"Café/1.0\"", 3, `robots: user_agent "Café/1.0": has characters that a header cannot carry`},
		{"user_agent \"\"", 3, `option "user_agent" of robots has an empty argument: give a value, or leave the option out`},
		{"user_agent \"A (+{env.URL})\"", 3, `option "user_agent" of robots: "A (+{env.URL})": placeholders are not replaced here: want {$NAME}, which is replaced as the file is read`},
		{"fetch {\nretry 1m 0\n}", 4, `option "retry" of fetch: "0" is zero; leave the option out to get its default`},
		{"pace {\nbackoff 1m 0s\n}", 4, `option "backoff" of pace: "0s" is zero; leave the option out to get its default`},
		{"egress {\nupstream http://a:1 x.example\nupstream http://b:1\nupstream http://c:1\n}", 6, `robots: egress: upstream: one without hosts is for every host, so those after it are never reached: put it last`},
		{"user_agent A {\nx\n}", 4, `option "user_agent" of robots takes no block`},

		{"gateway \"east 1\"", 3, `robots: gateway "east 1": want up to 64 visible ASCII characters`},
		{"gateway " + strings.Repeat("x", 65), 3, `robots: gateway "` + strings.Repeat("x", 65) + `": want up to 64 visible ASCII characters`},
		{"gateway Köln", 3, `robots: gateway "Köln": want up to 64 visible ASCII characters`},
		{"allow_for soon", 3, `option "allow_for" of robots: "soon" is not a duration such as 10s, 5m or 24h`},
		{"allow_for -1h", 3, `option "allow_for" of robots: "-1h" is negative`},
		{"help wiki.example/robots/", 3, `robots: help: want a URL such as https://wiki.example.com/robots/, without credentials`},
		{"help ftp://wiki.example/", 3, `robots: help: want a URL such as https://wiki.example.com/robots/, without credentials`},
		{"help https:///robots/", 3, `robots: help: want a URL such as https://wiki.example.com/robots/, without credentials`},
		{"help \"https://wiki.example/a b/\"", 3, `robots: help: want a URL such as https://wiki.example.com/robots/, without credentials`},
		{"help https://user:secret@wiki.example/", 3, `robots: help: want a URL such as https://wiki.example.com/robots/, without credentials`},

		{"store sqlite", 3, `robots: store: kind "sqlite": want empty, file, none, redis, shelf`},
		{"store redis", 3, "robots: store: redis needs a url"},
		{"store redis http://localhost", 3, `robots: store: redis url has scheme "http": want redis, rediss or unix`},
		{"store redis redis://user:secret@:x", 3, `robots: store: redis url cannot be parsed; want one such as redis://redis.example:6379`},
		{"store none /tmp/x", 3, `option "store" of robots: "none" takes no argument, found "/tmp/x"`},
		{"store none {\nretain 1d\n}", 4, `robots: store: store none keeps texts in memory only: retain and retain_max are for file, retain for redis`},
		{"store redis redis://h {\nretain 1d\nretain_max 1GiB\n}", 5, `robots: store: redis bounds its memory itself: set its maxmemory instead of retain_max`},
		{"store file {\nretain 40000d\n}", 4, `robots: store: retain is longer than 100 years`},
		{"store file {\nretain 0\n}", 4, `option "retain" of store: "0" is zero; leave the option out to get its default`},
		{"store file {\nretain_max 1MiB\n}", 4, `robots: store: retain_max is below 16 MiB: texts would be dropped at once`},
		{"store file {\nkeep 1d\n}", 4, `unknown option "keep" in store: want one of retain, retain_max`},
		{"store file a b", 3, `option "store" of robots takes at most 2 arguments, found 3`},

		{"cache 1h", 3, `option "cache" of robots takes no argument, found 1`},
		{"cache {\nmax_size 256\n}", 4, `robots: cache: max_size is below 1 MiB: rulesets would be dropped at once`},
		{"cache {\nmax_size many\n}", 4, `option "max_size" of cache: "many" is not a size such as 500KiB or 256MiB`},
		{"cache {\nttl soon\n}", 4, `option "ttl" of cache: "soon" is not a duration such as 10s, 5m or 24h`},
		{"cache {\nttl 0\n}", 4, `option "ttl" of cache: "0" is zero; leave the option out to get its default`},
		{"fetch {\nretry 0s 1h\n}", 4, `option "retry" of fetch: "0s" is zero; leave the option out to get its default`},
		{"pace {\nbackoff 0s 1h\n}", 4, `option "backoff" of pace: "0s" is zero; leave the option out to get its default`},
		{"cache {\nttl -1h\n}", 4, `option "ttl" of cache: "-1h" is negative`},
		{"cache {\nttl 25h\n}", 4, `robots: cache: ttl 25h0m0s is above 24h0m0s, the longest that RFC 9309 section 2.4 permits`},
		{"cache {\nmin_ttl 5m\n}", 4, `unknown option "min_ttl" in cache: want one of max_size, ttl`},
		{"limits {\nconnections_per_source 2\ntunnel_age 1h\nconnections 1\n}\nindex_html on", 6, `robots: limits: connections_per_source 2 is more than connections 1`},

		{"fetch {\ntimeout 6m\n}", 4, `robots: fetch: timeout 6m0s is above 5m: a crawler would wait that long`},
		{"fetch {\nmax_redirects 7\n}", 4, `unknown option "max_redirects" in fetch: want one of forbidden, parallel, retry, soft_404, timeout, unreachable, unreachable_for`},
		{"limits {\nurl_size 8KiB\n}", 4, `unknown option "url_size" in limits: want one of connections, connections_per_source, min_rate, requests_per_agent, tunnel_age`},
		{"signals {\nheaders on\n}", 4, `unknown option "headers" in signals: want one of html, tdm_file`},
		{"fetch {\nretry 1m\n}", 4, `option "retry" of fetch takes 2 arguments, found 1`},
		{"fetch {\nretry 2h 1h\n}", 4, `robots: fetch: retry: 2h0m0s is longer than 1h0m0s`},
		{"fetch {\nunreachable maybe\n}", 4, `robots: fetch: unreachable "maybe": want spec, stale, google, strict`},
		{"fetch {\nforbidden deny\n}", 4, `robots: fetch: forbidden "deny": want allow, disallow`},
		{"signals {\nhtml on\n}", 4, `robots: signals: html "on": want off, log, hold`},
		{"index_html yes", 3, `option "index_html" of robots: unknown value "yes": want on, off`},
		{"index_html", 3, `option "index_html" of robots takes 1 argument, found 0`},
		{"redact", 3, `option "redact" of robots takes at least 1 argument, found 0`},
		{"redact X-Key off", 3, `robots: redact: "off" is not a field name`},
		{"redact X-Key\nredact x-key", 4, `robots: redact: X-Key is given twice`},
		{"redact X:Key", 3, `robots: redact: "X:Key" is not a field name`},
		{"fetch {\nsoft_404 on\n}", 4, `robots: fetch: soft_404 "on": want detect, off`},
		{"egress {\nports 80\nupstream http://user:secret@proxy.example:x\n}", 5, `option "upstream" of egress: url cannot be parsed; want one such as http://proxy.example:8080`},
		{"egress {\nupstream ftp://proxy.example\n}", 4, `option "upstream" of egress: ftp://proxy.example: the scheme must be http, https or socks5`},
		{"egress {\nupstream http://\n}", 4, `option "upstream" of egress: no host; want one such as http://proxy.example:8080`},
		{
			"egress {\nupstream http://u:secret@proxy.example/x\n}", 4,
			`option "upstream" of egress: http://u:xxxxx@proxy.example/x: a path has no meaning here`,
		},
		{
			"egress {\nupstream http://proxy.example *.*\n}", 4,
			`option "upstream" of egress: host pattern "*.*": may have * only at its start, before a dot`,
		},
		{
			"egress {\nupstream http://proxy.example a.example:80\n}", 4,
			`option "upstream" of egress: host pattern "a.example:80": want a host without a port for an upstream`,
		},
		{"fetch {\nparallel 0\n}", 4, `option "parallel" of fetch: "0" is not a whole number from 1 to 100000`},

		{"pace {\nrate fast\n}", 4, `robots: pace: parsing rate "fast": want COUNT/TIME, such as 5/s, 30/m or 1/10s, or off`},
		{"pace {\nrate 0/s\n}", 4, `robots: pace: parsing rate "0/s": count is 0 (write off for no rate; to refuse a host, deny it)`},
		{"pace {\nburst 0\n}", 4, `option "burst" of pace: "0" is not a whole number from 1 to 100000`},
		{"pace {\ncrawl_delay 30s\n}", 4, `option "crawl_delay" of pace takes at least 2 arguments, found 1`},
		{"pace {\ncrawl_delay 30s 10s\n}", 4, `robots: pace: crawl_delay: 30s is longer than 10s`},
		{"pace {\ncrawl_delay 0s 10s ignore\n}", 4, `robots: pace: crawl_delay: above "ignore": want clamp, refuse, honor`},
		{"pace {\nper planet\n}", 4, `robots: pace: per "planet": want host, site, address`},
		{"pace {\nper host host\n}", 4, `robots: pace: per: "host" is given twice`},
		{"pace {\nbackoff 60s\n}", 4, `option "backoff" of pace: unknown value "60s": want "off" or a first and a longest pause`},
		{"pace {\nbackoff 24h 60s\n}", 4, `robots: pace: backoff: 24h0m0s is longer than 1m0s`},
		{"pace {\nshared memcached localhost\n}", 4, `option "shared" of pace: unknown kind "memcached": want redis`},
		{"pace {\nshared redis redis://localhost 3\n}", 4, `option "shared" of pace takes 2 arguments, found 3`},
		{"pace {\nshared redis localhost:6379\n}", 4, `robots: pace: shared: redis url has scheme "localhost": want redis, rediss or unix`},

		{"fleet", 3, `option "fleet" of robots takes at least 1 argument, found 0`},
		{"redis 192.0.2.1:6379", 3, `robots: redis url cannot be parsed; want one such as redis://redis.example:6379`},
		{"redis", 3, `option "redis" of robots takes 1 argument, found 0`},
		{"redis localhost:6379", 3, `robots: redis url has scheme "localhost": want redis, rediss or unix`},
		{"redis redis://localhost {\nprefix {x}y\n}", 4, `robots: redis: prefix "{x}y": want up to 64 visible ASCII characters without braces`},
		{"redis redis://localhost {\nexpect 0\n}", 4, `option "expect" of redis: "0" is not a whole number from 1 to 1000`},
		{"redis redis://localhost {\nmembers 2\n}", 4, `unknown option "members" in redis: want one of expect, prefix`},
		{"fleet etcd", 3, `option "fleet" of robots: unknown kind "etcd": want redis`},
		{"fleet redis", 3, "robots: fleet: redis needs a url: neither `pace shared` nor `store redis` has one"},
		{"fleet redis localhost:6379", 3, `robots: fleet: redis url has scheme "localhost": want redis, rediss or unix`},
		{"fleet redis redis://localhost {\nexpect 0\n}", 4, `option "expect" of fleet: "0" is not a whole number from 1 to 1000`},
		{"fleet redis redis://localhost {\nmembers 2\n}", 4, `unknown option "members" in fleet: want one of expect`},

		{"limits {\nmin_rate 100\n}", 4, `robots: limits: min_rate "100": want a rate such as 100B/s or 2KiB/s, or off`},
		{"limits {\nmin_rate 0B/s\n}", 4, `robots: limits: min_rate "0B/s": want a rate such as 100B/s or 2KiB/s, or off`},
		{"limits {\nconnections 0\n}", 4, `option "connections" of limits: "0" is not a whole number from 1 to 1000000`},
		{"limits {\ntunnel_age 0s\n}", 4, `option "tunnel_age" of limits: "0s" is zero; leave the option out to get its default`},
		{"limits {\nconnections 10\nconnections_per_source 20\n}", 5, `robots: limits: connections_per_source 20 is more than connections 10`},
		{"limits {\ntunnel_age 0s\n}", 4, `option "tunnel_age" of limits: "0s" is zero; leave the option out to get its default`},
		{"limits {\nbody_timeout 1m\n}", 4, `unknown option "body_timeout" in limits: want one of connections, connections_per_source, min_rate, requests_per_agent, tunnel_age`},
		{"egress {\nallow_private 10.0.0.1/8\n}", 4, `robots: egress: allow_private "10.0.0.1/8": has bits set outside the range, want 10.0.0.0/8`},
		{"egress {\nallow_private intranet\n}", 4, `robots: egress: allow_private "intranet": not an address range such as 10.0.0.0/8`},
		{"egress {\nports http\n}", 4, `robots: egress: ports: reading port range "http": reading port "http": want a number from 1 to 65535`},
		{"egress {\nports 0\n}", 4, `robots: egress: ports: reading port range "0": reading port "0": want a number from 1 to 65535`},
		{"egress {\nports 90-80\n}", 4, `robots: egress: ports: reading port range "90-80": first port is above the last`},
		{"egress {\nupstream 192.0.2.1:8080\n}", 4, `option "upstream" of egress: url cannot be parsed; want one such as http://proxy.example:8080`},
		{"egress {\nupstream proxy.example:8080\n}", 4, `option "upstream" of egress: no host; want one such as http://proxy.example:8080`},
		{"egress {\nupstream\n}", 4, `option "upstream" of egress takes at least 1 argument, found 0`},
		{"egress {\ndial_timeout 10\n}", 4, `option "dial_timeout" of egress: "10" is not a duration such as 10s, 5m or 24h`},
	} {
		b.check(t, "")
	}
}

// testHash is the hash of a password that nobody knows.
const testHash = "$2a$14$4W2zRBh/0o4M5YfiUhIxe.WwZ2HnUUEpLXpMWUwHTaw9ijR6Z1wUW"

// TestBadGateway checks the error for each mistake in the directive.
func TestBadGateway(t *testing.T) {
	t.Parallel()
	for _, b := range []badLines{
		{"speed fast", 3, `unknown option "speed" in robots: want one of agent, clients, connect, deny, egress, except, mode, paths, preferences, unidentified, unknown`},
		{"mode strict", 3, `robots: mode "strict": want enforce, report, off`},
		{"clients", 3, `option "clients" of robots takes at least 1 argument, found 0`},
		{"clients everyone", 3, `robots: clients "everyone": not an address range such as 10.0.0.0/8`},
		{"clients 10.0.0.1/8", 3, `robots: clients "10.0.0.1/8": has bits set outside the range, want 10.0.0.0/8`},
		{"clients any 10.0.0.0/8", 3, `robots: clients: "any" must be alone, because it covers every range`},
		{"clients 10.0.0.0/8\nclients any", 4, `robots: clients: "any" must be alone, because it covers every range`},
		{"mode report\nmode off", 4, `option "mode" of robots: the mode of the gateway is given twice`},
		{"mode off bad..pattern", 3, `robots: mode off of hosts: host pattern "bad..pattern": origin: host "bad..pattern" has an empty label`},

		{"agent", 3, `option "agent" of robots takes 1 argument, found 0`},
		{"agent A B", 3, `option "agent" of robots takes 1 argument, found 2; quote a text with spaces`},
		{"agent A {\ncolour red\n}", 4, `unknown option "colour" in agent A: want one of also_obey, budget, client_certificate, contact, credential, expires, from, ` +
			`hosts, hosts_file, ignore_wildcard_group, max_wait, methods, mode, owner, pass, ports, preferences, purpose, rate, send_from, send_user_agent, sign, ticket, token, unknown, user_agent, visit_time, window`},
		{"agent A {\nhosts a.example .b.example\n}", 4, `robots: agent "A": hosts: host pattern ".b.example": could mean the name with or without the names below it; write b.example, *.b.example or both`},
		{"agent A {\nhosts_file a b\n}", 4, `option "hosts_file" of agent A takes 1 argument, found 2; quote a text with spaces`},
		{"agent A {\nports 443\nports 90-80\n}", 5, `robots: agent "A": ports: reading port range "90-80": first port is above the last`},
		{"agent A {\nmethods GET\nmethods post\n}", 5, `robots: agent "A": methods "post": want methods of requests in capitals, such as GET`},
		{"agent A {\nwindow 22:00-06:00 UTC\nwindow 22:00-06:00 Mars\n}", 5, `robots: agent "A": window "22:00-06:00 Mars": there is no time zone "Mars"`},
		{"agent A {\nwindow\n}", 4, `option "window" of agent A takes at least 1 argument, found 0`},
		{"agent A {\nvisit_time on\n}", 4, `robots: agent "A": visit_time "on": want keep, ignore`},
		{"agent A {\nexpires soon\n}", 4, `robots: agent "A": expires "soon": want a date such as 2027-03-31`},
		{"agent A {\nticket T-1\n}", 4, `robots: agent "A": ticket: want a line of up to 200 bytes, together with expires`},
		{"agent A\nagent a", 4, `robots: agent "a" is given twice (names are compared ignoring case)`},
		{"agent A {\ntoken \"not a token\"\n}", 4, `robots: agent "A": token "not a token" is not a product token: ` +
			`want a single word without a version, of letters, digits, "-", "_" and "."`},
		{"agent A {\ncredential user password\n}", 4, `robots: agent "A": credential of "user": ` +
			`the hash is not of bcrypt or argon2id; make one with: crawlgate hash-password`},
		{"agent A {\ncredential user\n}", 4, `option "credential" of agent A takes 2 arguments, found 1`},
		{
			"agent A {\ncredential u " + testHash + "\n}\nagent B {\ncredential u " + testHash + "\n}", 7,
			`robots: agents "A" and "B" can both match one request, by credential user "u"`,
		},
		{"agent A {\ntoken X\n}\nagent B {\ntoken X\n}", 7, `robots: agents "A" and "B" can both match one request, by User-Agent product "x"`},
		{"agent A {\nfrom 10.0.0.0/33\n}", 4, `robots: agent "A": from "10.0.0.0/33": not an address range such as 10.0.0.0/8`},
		{"agent A {\nignore_wildcard_group yes\n}", 4, `option "ignore_wildcard_group" of agent A takes no argument, found 1`},
		{"agent A {\nrate 5\n}", 4, `robots: agent "A": parsing rate "5": want COUNT/TIME, such as 5/s, 30/m or 1/10s, or off`},
		{"agent A {\nbudget {\nrequests 5\n}\n}", 5, `robots: agent "A": budget: requests "5": want a number above 0 for a day, such as 50000/day`},
		{"agent A {\nbudget {\nzone UTC\n}\n}", 4, `robots: agent "A": budget: want at least one of requests, bytes and per_host`},
		{"agent A {\nbudget {\nrequests 5/day\nzone Local\n}\n}", 6, `robots: agent "A": budget: zone "Local": want a name such as Europe/Berlin`},
		{
			"egress off\nagent A {\nbudget {\nrequests 5/day\nbytes 1GB/day\n}\n}", 7,
			`robots: agent "A": budget: bytes: with egress off, other handlers send the bytes, and none are counted`,
		},
		{"agent A {\nbudget {\ncolour red\n}\n}", 5, `unknown option "colour" in budget: want one of bytes, per_host, requests, zone`},
		{"agent A {\nmax_wait 5\n}", 4, `option "max_wait" of agent A: "5" is not a duration such as 10s, 5m or 24h`},
		{"agent A {\nmax_wait -5s\n}", 4, `option "max_wait" of agent A: "-5s" is negative`},
		{"agent A {\nmax_wait 5s\nmax_wait 5s\n}", 5, `option "max_wait" of agent A is given twice`},
		{"agent A {\nmode on\n}", 4, `robots: agent "A": mode "on": want enforce, report, off`},

		{
			"agent A {\nsend_user_agent \"B/1.0 (+https://a.example)\"\n}", 4, `robots: agent "A": send_user_agent "B/1.0 (+https://a.example)": ` +
				`its first product is none of the agent's tokens (A): a site could not tell which group of its robots.txt is meant`,
		},
		{
			"agent A {\nsend_user_agent \"B/1.0 A/2.0\"\n}", 4, `robots: agent "A": send_user_agent "B/1.0 A/2.0": ` +
				`its first product is none of the agent's tokens (A): a site could not tell which group of its robots.txt is meant`,
		},
		{"agent A {\nsend_user_agent \"A/1.0 é\"\n}", 4, `robots: agent "A": send_user_agent "A/1.0 é": has characters that a header cannot carry`},
		{"agent A {\nsend_user_agent \" A/1.0\"\n}", 4, `robots: agent "A": send_user_agent " A/1.0": has characters that a header cannot carry`},
		{
			"agent A {\nsend_user_agent A/" + strings.Repeat("1", 255) + "\n}", 4,
			`robots: agent "A": send_user_agent "A/` + strings.Repeat("1", 251) + `..." is longer than 256 bytes`,
		},
		{"agent A {\nsend_from bot\n}", 4, `robots: agent "A": send_from "bot": want an address such as crawl@example.com`},
		{"agent A {\nsend_from \"Bot <a@b.example>\"\n}", 4, `robots: agent "A": send_from "Bot <a@b.example>": want an address such as crawl@example.com`},
		{"agent A {\nsign {\nkeys k\n}\n}", 4, `robots: agent "A": sign: want keys, a file, and directory, an origin`},
		{"agent A {\nsign {\nkeys k\ndirectory http://a.example\n}\n}", 6, `robots: agent "A": sign: directory: want an origin such as https://bot.example.com`},
		{"agent A {\nsign {\nkeys k\nkey l\n}\n}", 6, `unknown option "key" in sign: want one of directory, keys, string`},
		{
			"agent A {\nsign {\nkeys k\ndirectory https://a.example\nstring *.*\n}\n}", 7,
			`robots: agent "A": sign: string: host pattern "*.*": may have * only at its start, before a dot`,
		},
		{
			"agent A {\nsign {\nkeys k\ndirectory https://a.example\n}\npass signature\n}", 8,
			`robots: agent "A": sign and pass signature exclude each other: a request has one signature`,
		},

		{"paths both", 3, `robots: paths "both": want strict, as_sent`},
		{"paths strict\npaths strict", 4, `option "paths" of robots is given twice`},
		{"except a.example {\npath /a;x\n}", 4, `robots: except a.example: path "/a;x" covers nothing: servers resolve it to "/a"`},
		// A fault of the whole is reported at the line that introduces it, even if other lines
		// would be wrong without the ones that follow.
		{"except a.example {\nagent B\n}\nagent A {\nowner x\nrate 1/s\n}", 4, `robots: except a.example: there is no agent "B"`},
		{
			"except a.example {\nagent B\n}\nagent A {\nuser_agent x\n}\nagent B {\nuser_agent y\nuser_agent x\nrate 1/s\n}", 11,
			`robots: agents "A" and "B" can both match one request, by User-Agent product "x"`,
		},
		{
			"agent A:1 {\nrate 1/s\ntoken a\nfrom 10.0.0.1/8\nowner x\n}\nunidentified allow", 6,
			`robots: agent "A:1": from "10.0.0.1/8": has bits set outside the range, want 10.0.0.0/8`,
		},
		{"mode off\nagent A:1 {\nrate 1/s\n}", 4, `robots: agent "A:1": its name is not a product token: give it a token`},
		{"connect tunnel *.example\nconnect tunnel a.example\nconnect deny *.b.example", 5, `robots: connect deny: "*.b.example" is never reached, because "*.example" comes first`},
		{"connect tunnel *:443\nconnect deny a.example\nconnect deny b.example:443", 5, `robots: connect deny: "b.example:443" is never reached, because "*:443" comes first`},
		{"agent A {\nuser_agent a, b\n}", 4, `option "user_agent" of agent A has a comma between arguments: want a space alone`},
		{"agent \"\"", 3, `option "agent" of robots has an empty argument: give a value, or leave the option out`},
		{"agent A {\nhosts_file \"\"\n}", 4, `option "hosts_file" of agent A has an empty argument: give a value, or leave the option out`},
		{"mode off \"\"", 3, `option "mode" of robots has an empty argument: give a value, or leave the option out`},
		{"agent A {\nowner {env.TEAM}\n}", 4, `option "owner" of agent A: "{env.TEAM}": placeholders are not replaced here: want {$NAME}, which is replaced as the file is read`},
		{"agent \"A B\" {\ntoken a\n}", 3, `robots: agent name "A B": only visible ASCII is allowed`},
		{"agent A {\ntoken a *\n}", 4, `robots: agent "A": token "*" is not a product token: an agent without a group of its own gets * by itself`},
		{"agent A {\ntoken a\ntoken A\n}", 5, `robots: agent "A": token "A" is given twice`},
		{"agent A {\nuser_agent \" \"\n}", 4, `robots: agent "A": user_agent pattern is empty`},
		{"agent A {\nuser_agent \"a\tb\"\n}", 4, `robots: agent "A": user_agent pattern "a\tb" has a control character`},
		{
			"agent A {\ncredential a:b " + testHash + "\n}", 4,
			`robots: agent "A": credential user "a:b": want 1 to 200 bytes without colon and control characters`,
		},
		{"agent A {\npass Signature\n}", 4, `robots: agent "A": pass "Signature": want price, signature, each once`},
		{"agent A {\npass price price\n}", 4, `robots: agent "A": pass "price": want price, signature, each once`},
		{"agent A {\nclient_certificate \"\x01\"\n}", 4, `robots: agent "A": client_certificate name "\x01" is empty or has a control character`},
		{"agent A {\nowner \"a\nb\"\n}", 4, `robots: agent "A": owner and contact are lines of up to 200 bytes`},
		{"mode off a.example\nmode report A.example", 4, `robots: mode report of hosts: "a.example" is given twice`},
		{"deny a.example\ndeny b.example a.example", 4, `robots: deny: "a.example" is given twice`},
		{"connect tunnel\nconnect deny a.example", 4, `robots: connect tunnel: applies to every host, so the rules after it are never reached`},
		{"connect deny a.example\nconnect deny a.example", 4, `robots: connect deny: "a.example" is given twice`},
		{"except *.* {\nreason x\n}", 3, `robots: except *.*: host pattern "*.*": may have * only at its start, before a dot`},
		{"except a.example {\nreason \"a\nb\"\n}", 4, `robots: except a.example: reason, ticket and approved_by are one line of up to 200 bytes together`},
		{"except a.example {\npath /x*\n}", 4, `robots: except a.example: path "/x*": want a plain prefix, without * and #`},

		{"unidentified ask", 3, `robots: unidentified "ask": want deny, allow`},
		{"connect", 3, `option "connect" of robots takes at least 1 argument, found 0`},
		{"connect open", 3, `option "connect" of robots: connect "open": want intercept, tunnel, deny`},
		{"connect tunnel *.*", 3, `robots: connect tunnel: host pattern "*.*": may have * only at its start, before a dot`},

		{"except {\npath /x\n}", 3, `option "except" of robots takes at least 1 argument, found 0`},
		{"except example.com {\nbecause x\n}", 4, `unknown option "because" in except: want one of agent, approved_by, path, reason, ticket, until`},
		{"except example.com {\npath x\n}", 4, `robots: except example.com: path "x" does not start with a slash`},
		{"except example.com {\nuntil 2020-02-30\n}", 4, `robots: except example.com: until "2020-02-30": want a date such as 2026-12-31, ` +
			`or a time such as 2026-12-31T12:00:00Z`},
		{"deny", 3, `option "deny" of robots takes at least 1 argument, found 0`},
		{"deny http://example.com", 3, `robots: deny: host pattern "http://example.com": is a URL; want the host alone`},
		{"egress on", 3, `option "egress" of robots: unknown value "on": want off`},
		{"egress off\negress off", 4, `option "egress" of robots is given twice`},
	} {
		b.check(t, ":3128 ")
	}
}

// TestBadHead checks the errors for mistakes outside the blocks.
func TestBadHead(t *testing.T) {
	t.Parallel()
	noMatcher := func(found string) string {
		return fmt.Sprintf("parsing caddyfile tokens for 'robots': directive \"robots\" takes no matcher, found %q: "+
			"Caddy would answer what it does not match with an empty 200, at Caddyfile:2", found)
	}
	const twice = `directive "robots" is given twice in a site: it is also in line 2`
	const site = ":3128 {\n\trobots\n}\n"
	for _, tt := range []struct{ text, err string }{
		{"{\n\trobots now\n}\n" + site, `parsing caddyfile tokens for 'robots': global option "robots" takes no argument, found "now", at Caddyfile:2`},
		{"{\n\trobots\n\trobots\n}\n" + site, `parsing caddyfile tokens for 'robots': global option "robots" is given twice, at Caddyfile:3`},
		{":3128 {\n\trobots on\n}\n", `parsing caddyfile tokens for 'robots': directive "robots" takes no argument, found "on", at Caddyfile:2`},
		{":3128 {\n\trobots /path {\n\t}\n}\n", noMatcher("/path")},
		{":3128 {\n\trobots *\n}\n", noMatcher("*")},
		{":3128 {\n\trobots @ours\n\t@ours remote_ip 10.0.0.0/8\n}\n", noMatcher("@ours")},
		{":3128 {\n\trobots\n\tlog\n\trobots\n}\n", "parsing caddyfile tokens for 'robots': " + twice + ", at Caddyfile:4"},
		{
			"(gateway) {\n\trobots\n}\n:3128 {\n\timport gateway\n}\n:3129 {\n\timport gateway\n\timport gateway\n}\n",
			"parsing caddyfile tokens for 'robots': " + twice + ", at Caddyfile:2 import chain ['Caddyfile:9 (import gateway)']",
		},
		{
			":3128 {\n\trobots\n\thandle /x {\n\t\trobots\n\t}\n}\n",
			"parsing caddyfile tokens for 'handle': parsing caddyfile tokens for 'robots': " + twice + ", at Caddyfile:4, at Caddyfile:5",
		},
	} {
		if _, _, err := adapt(tt.text, "Caddyfile"); err == nil || err.Error() != tt.err {
			t.Errorf("%s\n got %v\nwant %s", tt.text, err, tt.err)
		}
	}
}

// TestBadProvision checks the errors for mistakes that are found only when the configuration is
// provisioned.
func TestBadProvision(t *testing.T) {
	for _, tt := range []struct{ text, err string }{
		{egressWith("trust_ca /nonexistent.pem"), "egress: trust_ca: open /nonexistent.pem: no such file or directory"},
		{egressWith("trust_ca /dev/null"), "egress: trust_ca [/dev/null]: adding trusted authority 1: no certificate in PEM form"},
		{egressWith("upstream http://user:secret@proxy.example:x{system.slash}"), "egress: upstream: url cannot be parsed; want one such as http://proxy.example:8080"},
		{egressWith("upstream ftp://proxy.example{system.slash}"), `egress: upstream: ftp://proxy.example/: the scheme must be http, https or socks5`},
		{egressWith("upstream http://user:secret{env.NOT_SET}@proxy.example"), "egress: upstream: evaluated placeholder {env.NOT_SET} is empty"},
		{engineWith("redis {env.NOT_SET}"), "evaluated placeholder {env.NOT_SET} is empty"},
		{engineWith("store file {env.NOT_SET}"), "evaluated placeholder {env.NOT_SET} is empty"},
		{engineWith("store redis {env.NOT_SET}"), "evaluated placeholder {env.NOT_SET} is empty"},
		{engineWith("fleet redis {env.NOT_SET}"), "evaluated placeholder {env.NOT_SET} is empty"},
		{engineWith("pace {\nshared redis {env.NOT_SET}\n}"), "evaluated placeholder {env.NOT_SET} is empty"},
	} {
		config, _, err := adapt(tt.text, "Caddyfile")
		if err != nil {
			t.Errorf("adapting %s: %v", tt.text, err)
			continue
		}
		if err := validate(config); err == nil || !strings.HasSuffix(err.Error(), "provision robots: "+tt.err) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s\n got %v\nwant %s", tt.text, err, tt.err)
		}
	}
}

func engineWith(lines string) string { return "{\n\trobots {\n" + lines + "\n\t}\n}\n" }

func egressWith(line string) string { return engineWith("egress {\n" + line + "\n}") }

// TestBudgetsOfOneName checks that blocks with the same name must have the same budget, since they
// share it.
func TestBudgetsOfOneName(t *testing.T) {
	site := func(port, lines string) string {
		return ":" + port + " {\n\trobots {\n\t\tagent A {\n\t\t\tbudget {\n\t\t\t\t" + lines + "\n\t\t\t}\n\t\t}\n\t}\n}\n"
	}
	for second, want := range map[string]string{
		"requests 5/day\nzone Europe/Berlin": "",
		"requests 5/day":                     `agent "A": its blocks at two sites have different budgets; they share one`,
	} {
		config, _, err := adapt(site("3128", "requests 5/day\nzone Europe/Berlin")+site("3129", second), "Caddyfile")
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(config); want == "" && err != nil || want != "" && (err == nil || !strings.HasSuffix(err.Error(), want)) {
			t.Errorf("validate with a second block %q: got %v", second, err)
		}
	}
}

// TestBadAddress checks that a site address that no proxied request would match is refused, with
// its line and the reason.
func TestBadAddress(t *testing.T) {
	t.Parallel()
	want := func(kind, value string) string {
		return "the site address of a gateway must not name a " + kind + " (" + value + "): requests through a proxy carry the " + kind +
			" of their target and would never match; write the port alone, such as :3128"
	}
	for address, err := range map[string]string{
		"example.com":                             want("host", "example.com") + ", at Caddyfile:3",
		"http://example.com:3128":                 want("host", "example.com") + ", at Caddyfile:3",
		"*.example.com":                           want("host", "*.example.com") + ", at Caddyfile:3",
		"localhost:3128":                          want("host", "localhost") + ", at Caddyfile:3",
		"http://127.0.0.1:3128":                   want("host", "127.0.0.1") + ", at Caddyfile:3",
		"0.0.0.0:3128":                            want("host", "0.0.0.0") + ", at Caddyfile:3",
		"http://a.example:1,\nhttp://b.example:1": want("host", "a.example") + ", at Caddyfile:3",
		":3128,\nhttp://example.com":              want("host", "example.com") + ", at Caddyfile:4",
		":3128/foo":                               want("path", "/foo") + ", at Caddyfile:3",
		":3128/":                                  want("path", "/") + ", at Caddyfile:3",
		":3128, :3129/x*":                         want("path", "/x*") + ", at Caddyfile:3",
		"localhost:3128/x":                        want("host", "localhost") + ", at Caddyfile:3",
	} {
		for _, site := range []string{"robots", "handle /a {\nrobots\n}", "route {\nhandle {\nrobots\n}\n}"} {
			if _, _, got := adapt("{\n}\n"+address+" {\n"+site+"\n}\n", "Caddyfile"); got == nil || !strings.Contains(got.Error(), err) {
				t.Errorf("%s: %s:\n got %v\nwant %s", address, site, got, err)
			}
		}
	}
	for _, address := range []string{":3128", "http://", "https://:8443", ":3128, :3129"} {
		config, _, err := adapt(address+" {\n\ttls internal\n\trobots\n}\n&(gateway) {\n\trobots\n}\n", "Caddyfile")
		if err == nil {
			err = validate(config)
		}
		if err != nil {
			t.Errorf("adapting a site with address %s: %v", address, err)
		}
	}
}

// TestSeveralGateways checks that each block of a site may have a gateway.
func TestSeveralGateways(t *testing.T) {
	t.Parallel()
	_, _, err := adapt(":3128 {\n\thandle /a/* {\n\t\trobots\n\t}\n\thandle {\n\t\trobots\n\t}\n}\n:3129 {\n\trobots\n}\n", "Caddyfile")
	if err != nil {
		t.Error(err)
	}
}
