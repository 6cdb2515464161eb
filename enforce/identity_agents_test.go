package enforce

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestNewIdentifierRefuses(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 300)
	for name, tt := range map[string]struct {
		agents []Agent
		want   []string // each is part of the error
	}{
		"no name":              {[]Agent{{}}, []string{"no name"}},
		"long name":            {[]Agent{{Name: long}}, []string{"longer than 64"}},
		"name with blank":      {[]Agent{{Name: "a b"}}, []string{`"a b"`, "visible ASCII"}},
		"name not ASCII":       {[]Agent{{Name: "é"}}, []string{"visible ASCII"}},
		"name with DEL":        {[]Agent{{Name: "a\x7f"}}, []string{"visible ASCII"}},
		"name twice":           {[]Agent{{Name: "News"}, {Name: "news", Credentials: []string{"u"}}}, []string{`"news" is given twice`}},
		"token *":              {[]Agent{{Name: "a", Tokens: []string{"*"}}}, []string{`agent "a"`, `"*" is not a product token`}},
		"token empty":          {[]Agent{{Name: "a", Tokens: []string{""}}}, []string{`""`}},
		"token with version":   {[]Agent{{Name: "a", Tokens: []string{"A/1.0"}}}, []string{`"A/1.0"`, "without a version"}},
		"token with blank":     {[]Agent{{Name: "a", Tokens: []string{"A B"}}}, []string{"single word"}},
		"token with other":     {[]Agent{{Name: "a", Tokens: []string{"A+B"}}}, []string{`"A+B"`, "letters, digits"}},
		"token long":           {[]Agent{{Name: "a", Tokens: []string{long}}}, []string{"longer than 128"}},
		"token twice":          {[]Agent{{Name: "a", Tokens: []string{"A", "B", "a"}}}, []string{`"a" is given twice`}},
		"name as bad token":    {[]Agent{{Name: "a/b"}}, []string{`agent "a/b"`, "give it a token"}},
		"pattern empty":        {[]Agent{{Name: "a", UserAgents: []string{" "}}}, []string{"empty"}},
		"pattern long":         {[]Agent{{Name: "a", UserAgents: []string{long + "*"}}}, []string{"longer than 256"}},
		"pattern with newline": {[]Agent{{Name: "a", UserAgents: []string{"a\nb"}}}, []string{"control character"}},
		"user empty":           {[]Agent{{Name: "a", Credentials: []string{""}}}, []string{"credential user"}},
		"user with colon":      {[]Agent{{Name: "a", Credentials: []string{"u:p"}}}, []string{"colon"}},
		"certificate empty":    {[]Agent{{Name: "a", ClientCertificates: []string{""}}}, []string{"client_certificate"}},
		"range with host bits": {[]Agent{{Name: "a", From: prefixes(t, "10.0.0.1/8")}}, []string{"10.0.0.1/8 is not a range"}},
		"range zero":           {[]Agent{{Name: "a", From: []netip.Prefix{{}}}}, []string{"not a range"}},
		"owner two lines":      {[]Agent{{Name: "a", Owner: "x\ny"}}, []string{"owner and contact"}},
		"negative interval":    {[]Agent{{Name: "a", Interval: -time.Second}}, []string{"negative"}},

		"same token": {
			[]Agent{{Name: "a", Tokens: []string{"Acme"}}, {Name: "b", Tokens: []string{"ACME"}}},
			[]string{`agents "a" and "b"`, `User-Agent product "acme"`},
		},
		"name is another's token": {
			[]Agent{{Name: "acme"}, {Name: "b", Tokens: []string{"Acme"}}},
			[]string{`agents "acme" and "b"`, `product "acme"`},
		},
		"same credential": {
			[]Agent{{Name: "a", Credentials: []string{"u", "v"}}, {Name: "b", Credentials: []string{"w", "v"}}},
			[]string{`agents "a" and "b"`, `credential user "v"`},
		},
		"same certificate": {
			[]Agent{{Name: "a", ClientCertificates: []string{"c"}}, {Name: "b", ClientCertificates: []string{"c"}}},
			[]string{`agents "a" and "b"`, `client certificate name "c"`},
		},
		"range in range": {
			[]Agent{{Name: "a", From: prefixes(t, "10.0.0.0/8")}, {Name: "b", From: prefixes(t, "192.0.2.0/24", "10.1.0.0/16")}},
			[]string{`agents "a" and "b"`, "10.1.0.0/16 and 10.0.0.0/8"},
		},
		"range as IPv4-mapped": {
			[]Agent{{Name: "a", From: prefixes(t, "10.0.0.0/8")}, {Name: "b", From: prefixes(t, "::ffff:10.0.0.0/104")}},
			[]string{"10.0.0.0/8 and 10.0.0.0/8"},
		},
		"overlapping patterns": {
			[]Agent{{Name: "a", UserAgents: []string{"*news*"}}, {Name: "b", UserAgents: []string{"AcmeImg/*"}}},
			[]string{`agents "a" and "b"`, `"acmeimg/*" and "*news*"`, `both match "acmeimg/news"`},
		},
		"all of several conditions": {
			[]Agent{
				{Name: "a", From: prefixes(t, "10.0.0.0/8"), UserAgents: []string{"X", "Y"}},
				{Name: "b", From: prefixes(t, "10.2.0.0/16"), UserAgents: []string{"Y"}},
			},
			[]string{"sources", `product "y"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := NewIdentifier(IdentifierConfig{Agents: tt.agents, Verify: verifier})
			if err == nil {
				t.Fatal("the configuration is accepted")
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q lacks %q", err, part)
				}
			}
		})
	}
}

func TestNewIdentifierWantsVerify(t *testing.T) {
	t.Parallel()
	_, _, err := NewIdentifier(IdentifierConfig{Agents: []Agent{{Name: "a", Credentials: []string{"u"}}}})
	if err == nil || !strings.Contains(err.Error(), "verify") {
		t.Errorf("error %v, want one about verify", err)
	}
}

// Agents are not ambiguous if any evidence distinguishes them.
func TestNewIdentifierAccepts(t *testing.T) {
	t.Parallel()
	for name, agents := range map[string][]Agent{
		"different tokens":                {{Name: "a"}, {Name: "b"}},
		"bot and mybot":                   {{Name: "bot"}, {Name: "mybot"}},
		"same token, other credentials":   {{Name: "a", Tokens: []string{"T"}, Credentials: []string{"u"}}, {Name: "b", Tokens: []string{"T"}, Credentials: []string{"v"}}},
		"same second token":               {{Name: "a", Tokens: []string{"A", "T"}}, {Name: "b", Tokens: []string{"B", "T"}}},
		"second token is another's first": {{Name: "a", Tokens: []string{"AcmeNews", "Acme"}}, {Name: "b", Tokens: []string{"Acme"}}},
		"same range, other User-Agents":   {{Name: "a", From: prefixes(t, "10.0.0.0/8"), UserAgents: []string{"X"}}, {Name: "b", From: prefixes(t, "10.0.0.0/8"), UserAgents: []string{"Y"}}},
		"same range, stronger evidence":   {{Name: "a", From: prefixes(t, "10.0.0.0/8")}, {Name: "b", From: prefixes(t, "10.0.0.0/8"), UserAgents: []string{"Y"}}},
		"same credential, one with range": {{Name: "a", Credentials: []string{"u"}}, {Name: "b", Credentials: []string{"u"}, From: prefixes(t, "10.0.0.0/8")}},
		"product and pattern":             {{Name: "a", UserAgents: []string{"Acme"}}, {Name: "b", UserAgents: []string{"Acme*"}}},
		"IPv4 and IPv6":                   {{Name: "a", From: prefixes(t, "0.0.0.0/0")}, {Name: "b", From: prefixes(t, "::/0")}},
		"disjoint patterns":               {{Name: "a", UserAgents: []string{"A/*", "B/*"}}, {Name: "b", UserAgents: []string{"C/*"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, _, err := NewIdentifier(IdentifierConfig{Agents: agents, Verify: verifier}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRFC9309_2_2_1_TokenWarnings(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		agent Agent
		want  []string
	}{
		{Agent{Name: "Acme_News-Bot"}, nil},
		{Agent{Name: "a", Tokens: []string{"Bot2", "Bot"}}, []string{`token "Bot2"`}},
		{Agent{Name: "acme.bot"}, []string{`token "acme.bot"`}},
		{Agent{Name: "acme.bot", Tokens: []string{"AcmeBot"}}, nil},
		{Agent{Name: "a", Tokens: []string{"Mozilla"}}, []string{"every browser"}},
	} {
		_, warnings, err := NewIdentifier(IdentifierConfig{Agents: []Agent{tt.agent}})
		if err != nil {
			t.Fatal(err)
		}
		if len(warnings) != len(tt.want) {
			t.Errorf("%v: warnings %q, want %q", tt.agent, warnings, tt.want)
			continue
		}
		for i := range tt.want {
			if !strings.Contains(warnings[i], tt.want[i]) || !strings.Contains(warnings[i], tt.agent.Name) {
				t.Errorf("warning %q lacks %q", warnings[i], tt.want[i])
			}
		}
	}
}

func TestConditionNamesAreClosed(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for c := condition(1); c < 16; c++ {
		seen[c.String()] = true
	}
	if len(seen) != 15 || condition(15).String() != "credential+client_certificate+source+user_agent" {
		t.Errorf("the conditions have the names %v", seen)
	}
}
