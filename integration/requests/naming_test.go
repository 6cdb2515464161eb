package requests

import (
	"slices"
	"testing"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// namedRules disallow /private for the named crawlers only.
const namedRules = "User-agent: GPTBot\nUser-agent: Applebot\nUser-agent: Storebot-Google\nUser-agent: Bytespider\n" +
	"User-agent: Baiduspider-image\nUser-agent: Linux\nUser-agent: U\nUser-agent: Safari\nDisallow: /private\n"

// User-Agents of crawlers and of browsers; robotstxt/testdata/useragents has all, with sources.
const (
	gptBot     = "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko); compatible; GPTBot/1.1; +https://openai.com/gptbot"
	applebot   = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_5) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/13.1.1 Safari/605.1.15 (Applebot/0.1; +http://www.apple.com/go/applebot)"
	storebot   = "Mozilla/5.0 (X11; Linux x86_64; Storebot-Google/1.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/79.0.3945.88 Safari/537.36"
	bytespider = "Mozilla/5.0 (Linux; Android 5.0; SM-G900P Build/LRX21T) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/47.0.5267.1259 Mobile Safari/537.36; Bytespider"
	baidu      = "Baiduspider-image+(+http://www.baidu.com/search/spider.htm)"
	kindle     = "Mozilla/4.0 (compatible; Linux 2.6.22) NetFront/3.4 Kindle/2.5 (screen 1200x824; rotate)"
	chrome     = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/131.0.0.0 Safari/537.36"
)

// TestRFC9309_2_2_1_CrawlersThatPoseAsBrowsers checks that without agent blocks the product token
// identifies a crawler, anywhere in the field.
func TestRFC9309_2_2_1_CrawlersThatPoseAsBrowsers(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK(namedRules))
	g := rig.New(t, rig.Config{Engine: "pace {\nrate off\n}"})
	cases := []struct{ field, token string }{
		{gptBot, "GPTBot"},
		{applebot, "Applebot"},
		{storebot, "Storebot-Google"},
		{bytespider, "Bytespider"},
		{baidu, "Baiduspider-image"},
		{kindle, ""},
		{chrome, ""},
	}
	for i, tt := range cases {
		got := rig.Get(t, g.Client(tt.field), site.URL(rig.PrivatePage)).Status
		want := 403
		if tt.token == "" {
			want = 200
		}
		line := g.Logs(i + 1)[i].Robots
		if got != want || line.Agent != tt.token || len(line.Tokens) > 0 && line.Tokens[0] != tt.token || (tt.token == "") != (len(line.Tokens) == 0) {
			t.Errorf("%q: status %d, agent %q, tokens %q, want %d and %q", tt.field, got, line.Agent, line.Tokens, want, tt.token)
		}
	}
}

// TestAgentsThatPoseAsBrowsers checks that agent blocks find an agent in the same places, and that
// no other request is sent under its name.
func TestAgentsThatPoseAsBrowsers(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK(namedRules))
	g := rig.New(t, rig.Config{Engine: "pace {\nrate off\n}", Site: `
		agent gpt {
			token GPTBot
		}
		agent pictures {
			token Baiduspider-image Baiduspider
		}
		agent office {
			token Applebot
			from 192.0.2.0/24
		}
		unidentified allow`})
	cases := []struct {
		field, agent string
		tokens       []string
		reason       enforce.Reason
	}{
		{gptBot, "gpt", []string{"GPTBot"}, enforce.ReasonDisallowed},
		{baidu, "pictures", []string{"Baiduspider-image", "Baiduspider"}, enforce.ReasonDisallowed},
		{applebot, "office", []string{"Applebot"}, enforce.ReasonAgentMismatch},
		{bytespider, "", []string{"Bytespider"}, enforce.ReasonDisallowed},
		{chrome, "", nil, enforce.ReasonNoRule},
	}
	for i, tt := range cases {
		_ = rig.Get(t, g.Client(tt.field), site.URL(rig.PrivatePage))
		line := g.Logs(i + 1)[i].Robots
		if line.Agent != tt.agent || !slices.Equal(line.Tokens, tt.tokens) || line.Reason != tt.reason {
			t.Errorf("%q: agent %q, tokens %q, reason %q, want %q, %q, %q", tt.field, line.Agent, line.Tokens, line.Reason, tt.agent, tt.tokens, tt.reason)
		}
	}
}
