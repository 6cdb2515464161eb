package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/signals/preferences"
)

type checkOptions struct {
	robots       string
	agent        string
	gateway      string
	site         string
	allowPrivate []string
	json         bool
	jsonl        bool
	indexHTML    bool
	paths        string
	purposes     []string
	alsoObey     []string
	preferences  string
}

// The help of check.
const (
	checkLong = `Says for each URL whether the agent may crawl it, and by which rule, line and group of robots.txt.
With --gateway a running gateway decides, by its whole policy.

Without --robots and --gateway, the command fetches the robots.txt of each site once, with the
limits, redirects and address checks of a gateway with default settings. It neither reads nor
writes the store of a gateway. A site that cannot be reached may not be crawled (RFC 9309, section
2.3.1.4). That counts as disallowed, and a line below the table has the result of the fetch.

Without --gateway a path is judged as it is written (RFC 9309). With --paths strict it is also
judged as servers resolve it, as a gateway does by default: /x/../private is /private. If the two
differ, the form that decided follows the reason, as in "disallowed (resolved)".

If robots.txt has preferences about the use of a URL that may be fetched, or with --purpose, a
second table lists them. A conflict is a purpose of the crawler that the site says n to. It counts
as disallowed only with --preferences deny. The command fetches no page, so it does not know
preferences in header fields or in pages.

A single product token is followed by its family. The first of these tokens that has a group
decides alone:
  TOKEN                            FAMILY                     WITHOUT A GROUP
  Googlebot-News, Googlebot-Image  Googlebot                  *
  Googlebot-Video, -Mobile         Googlebot                  *
  Mediapartners-Google             Mediapartners, Googlebot   *
  AdsBot-Google-Mobile             AdsBot-Google              nothing binds it
  AdsBot-Google-Mobile-Apps        AdsBot-Google              nothing binds it
  AdsBot-Google                                               nothing binds it

Google's own pages differ from one another. Some name Googlebot after Mediapartners-Google, others
say that Mediapartners-Google ignores *. This table has the stricter readings. If an agent block
says token, it names all tokens of the agent, and no family is added.

With --jsonl the command answers questions from a file or from standard input, one JSON object a
line, in their order:
  {"id":1,"robots":"<base64>","agent":"A","url":"https://example.com/path"}
  {"id":2,"robots_file":"path","agents":["A","B"],"url":"/path"}
The answers are:
  {"id":1,"allowed":true,"rule":"/path","line":12,"group":"A"}
  {"id":2,"allowed":false,"rule":"/","line":2,"group":"*"}
  {"id":null,"error":"..."}
If no rule decided, rule is empty and line is 0. If no group matched, group is empty. With --paths
strict each answer has form as its last field, empty if servers do not resolve the path to another
one. An error in one line does not end the command, but the exit status is 2.

Exit status: 0 all URLs are allowed, 1 some are disallowed, 2 something could not be decided. The
standard error stream names status 1, but not with --json or --jsonl.`

	checkExample = `  crawlgate robots check --agent AcmeBot https://example.com/ https://example.com/search?q=x
  crawlgate robots check --robots robots.txt --agent Googlebot-News,Googlebot /fish.html
  crawlgate robots check --gateway localhost:2019 --agent acme-shop https://example.com/

  $ crawlgate robots check --robots robots.txt --agent AcmeBot /private/x /page
  VERDICT  REASON      LINE  RULE       GROUP  STATE  URL
  deny     disallowed  2     /private/  *      rules  /private/x
  allow    no_rule                      *      rules  /page
  exit status 1: something is disallowed

  $ crawlgate robots check --robots robots.txt --agent AcmeBot --purpose train-ai,tdm /page
  VERDICT  REASON   LINE  RULE  GROUP  STATE  URL
  allow    no_rule              *      rules  /page

  PURPOSE   SAYS     SOURCE                 LINE  CONFLICT  URL
  search    y        robots_content_signal  3               /page
  train-ai  n        robots_content_signal  3     yes       /page
  tdm       unknown                                         /page`
)

func checkCommand() *cobra.Command {
	var c checkOptions
	cmd := command(cobra.Command{
		Use:   "check [--robots FILE | --gateway ADDRESS] --agent TOKEN[,TOKEN...] URL... | check --jsonl [FILE]",
		Short: "Says whether URLs may be crawled, and by which line",
		Long:  checkLong, Example: checkExample,
	}, c.run)
	f := cmd.Flags()
	f.StringVar(&c.robots, "robots", "", "decide by this robots.txt, - for standard input; URLs may then be paths")
	f.StringVar(&c.agent, "agent", "", "product tokens of the crawler, most specific first; with --gateway, the name of an agent")
	gatewayFlag(f, &c.gateway, anEndpoint)
	f.StringVar(&c.site, "site", "", "with --gateway, the listener whose policy decides, if there are several")
	f.StringSliceVar(&c.allowPrivate, "allow-private", nil, "address ranges that are not public and may be fetched from, such as 10.0.0.0/8; may be repeated")
	f.BoolVar(&c.indexHTML, "index-html", false, "read the files as a gateway with index_html on does")
	f.StringVar(&c.paths, "paths", "", "judge paths as_sent (default), or strict: also as servers resolve them; with --gateway its configuration decides")
	f.StringSliceVar(&c.purposes, "purpose", nil, "how the content is used, such as train-ai; may be repeated; with --gateway the agent's block decides")
	f.StringSliceVar(&c.alsoObey, "also-obey", nil, "tokens whose groups bind the crawler too, such as Google-Extended; may be repeated")
	f.StringVar(&c.preferences, "preferences", "", "what happens to a URL with a conflict: log (default) shows it, deny disallows it")
	f.BoolVar(&c.json, "json", false, "print the object of the access log for each URL, one per line")
	f.BoolVar(&c.jsonl, "jsonl", false, "answer questions, one JSON object per line")
	return cmd
}

func (c *checkOptions) run(ctx context.Context, s streams, args []string) (int, error) {
	paths := enforce.Paths(cmp.Or(c.paths, "as_sent")) // as RFC 9309 reads a file
	if err := paths.Check(); err != nil {
		return exitError, fmt.Errorf("--%w", err)
	}
	if c.jsonl {
		return c.answer(ctx, s, args, paths)
	}
	if c.robots == "" && len(c.allowPrivate) == 0 && !c.indexHTML && c.paths == "" && !c.hasUse() {
		c.gateway = cmp.Or(c.gateway, os.Getenv(gatewayVariable))
	}
	switch {
	case len(args) == 0:
		return exitError, misused("no URL is given")
	case c.agent == "":
		return exitError, misused("no --agent is given")
	case c.robots != "" && (c.gateway != "" || len(c.allowPrivate) > 0), c.gateway != "" && len(c.allowPrivate) > 0:
		return exitError, misused("--robots, --gateway and --allow-private exclude each other")
	case c.indexHTML && c.gateway != "":
		return exitError, misused("--index-html does not go with --gateway, which reads the files as it is configured to")
	case c.paths != "" && c.gateway != "":
		return exitError, misused("--paths does not go with --gateway, which judges paths as it is configured to")
	case c.site != "" && c.gateway == "":
		return exitError, misused("--site goes with --gateway")
	case c.gateway != "" && c.hasUse():
		return exitError, misused("--purpose, --also-obey and --preferences do not go with --gateway, which uses the agent's block")
	case c.preferences != "" && len(c.purposes) == 0:
		return exitError, misused("--preferences goes with --purpose")
	}
	decide, err := c.judge(s, paths)
	if err != nil {
		return exitError, err
	}
	return c.report(ctx, s, args, decide), nil
}

// hasUse reports whether a flag says how the content is used.
func (c *checkOptions) hasUse() bool {
	return len(c.purposes)+len(c.alsoObey) > 0 || c.preferences != ""
}

// judge decides about one URL.
type judge func(ctx context.Context, rawURL string) (judgement, error)

// judgement is the record of a decision, with more for the table.
type judgement struct {
	enforce.LogRecord
	// fetched describes the fetch of robots.txt if it returned no text, or the rest of a budget.
	fetched string
	// said is what the robots.txt says about the use of the content.
	said []adminapi.Preference
}

// judge returns the function that decides.
func (c *checkOptions) judge(s streams, paths enforce.Paths) (judge, error) {
	if c.gateway != "" {
		return c.askGateway()
	}
	identity, err := c.identity()
	if err != nil {
		return nil, err
	}
	if c.robots == "" {
		live, err := liveRules(c.allowPrivate, c.indexHTML)
		if err != nil {
			return nil, err
		}
		return judgeBy(live, identity, paths)
	}
	text, err := readRobots(c.robots, s.in)
	if err != nil {
		return nil, err
	}
	return judgeBy(fileRules(text, c.indexHTML), identity, paths)
}

// identity returns the crawler, with its purposes. A single token has its family behind it.
func (c *checkOptions) identity() (enforce.Identity, error) {
	var config enforce.IdentifierConfig
	tokens := strings.Split(c.agent, ",")
	if len(tokens) > 1 {
		config.Agents = []enforce.Agent{{Name: tokens[0], Tokens: tokens}}
	}
	crawlers, _, err := enforce.NewIdentifier(config)
	if err != nil {
		return enforce.Identity{}, fmt.Errorf("--agent: %w", err)
	}
	identity, ok := crawlers.Named(tokens[0])
	if !ok {
		return identity, fmt.Errorf("--agent: %q is not a product token: want a single word without a version", c.agent)
	}
	mode := enforce.PreferenceMode(cmp.Or(c.preferences, "log"))
	if err := mode.Check(); err != nil {
		return identity, fmt.Errorf("--%w", err)
	}
	const name = "flags" // for the check of the values alone
	use := enforce.Agent{Name: name, UserAgents: identity.Robots.Tokens[:1], Purposes: c.purposes, AlsoObey: c.alsoObey, Preferences: mode}
	identifier, _, err := enforce.NewIdentifier(enforce.IdentifierConfig{Agents: []enforce.Agent{use}})
	if err != nil {
		return identity, fmt.Errorf("--purpose, --also-obey: %w", cmp.Or(errors.Unwrap(err), err)) // without the name
	}
	checked, _ := identifier.Named(name)
	identity.Config = checked.Config
	return identity, nil
}

func (c *checkOptions) askGateway() (judge, error) {
	if strings.Contains(c.agent, ",") {
		return nil, errors.New("with --gateway, --agent is one name: the gateway knows its tokens")
	}
	client, err := newAdminClient(c.gateway)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, rawURL string) (judgement, error) {
		query := url.Values{"agent": {c.agent}, "url": {rawURL}, "site": {c.site}}
		e, err := call[adminapi.Explanation](ctx, client, get("explain", query))
		j := judgement{LogRecord: e.Robots, said: e.Preferences}
		if e.Budget != nil {
			j.fetched = e.Budget.String()
		}
		return j, err
	}, nil
}

// report prints the decisions and returns the exit status that sums them up. It continues after a
// URL that cannot be decided.
func (c *checkOptions) report(ctx context.Context, s streams, urls []string, decide judge) (status int) {
	t := newTable("VERDICT", "REASON", "LINE", "RULE", "GROUP", "STATE", "URL")
	said := newTable("PURPOSE", "SAYS", "SOURCE", "LINE", "CONFLICT", "URL")
	var notes []string
	for _, u := range urls {
		j, err := decide(ctx, u)
		if err != nil {
			s.complain("%s: %v", u, err)
			status = exitError
			continue
		}
		status = max(status, statusOf(j.LogRecord))
		if c.json {
			printJSON(s.out, j.LogRecord)
			continue
		}
		t.row(verdictOf(j.LogRecord), withNote(string(j.Reason), string(j.Form)), number(j.Line), cmp.Or(j.Rule, j.Exception), j.Group, withNote(j.State, j.Cause), u)
		j.addSaid(said, u)
		if j.fetched != "" && !slices.Contains(notes, j.fetched) {
			notes = append(notes, j.fetched)
		}
	}
	if c.json || t.rows == 1 {
		return status
	}
	for _, note := range notes {
		t.row(note)
	}
	t.print(s.out)
	printSections(s.out, said)
	if status == exitNo && s.out.err == nil {
		s.complain("exit status %d: something is disallowed", exitNo)
	}
	return status
}

// addSaid adds a row for each purpose in the flags or in the robots.txt.
func (j *judgement) addSaid(t *table, rawURL string) {
	for _, p := range j.said {
		conflict := ""
		against := p.Value == preferences.No.String() && slices.Contains(j.Purposes, p.Purpose)
		if j.Conflict != "" && (against || strings.HasPrefix(j.Conflict, p.Purpose+"=")) {
			conflict = "yes"
		}
		t.row(p.Purpose, p.Value, p.Source, number(p.Line), conflict, rawURL)
	}
}

// statusOf returns the exit status for a decision.
func statusOf(r enforce.LogRecord) int {
	switch {
	case r.Decision == enforce.OutcomeAllow:
		return exitOK
	case r.Reason.Failure():
		return exitError
	default:
		return exitNo
	}
}

func verdictOf(r enforce.LogRecord) string {
	if r.WouldDeny {
		return r.Decision + " (would deny)"
	}
	return r.Decision
}
