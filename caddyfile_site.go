package crawlgate

import (
	"errors"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/block"
)

// UnmarshalCaddyfile reads the gateway of one site.
//
//	robots {
//		mode enforce|report|off [<host-pattern>...]
//		clients <cidr>...|any
//		agent <name> {
//			token <product-token>...
//			user_agent <pattern>...
//			credential <user> <password-hash>
//			from <cidr>...
//			client_certificate <cn-or-san>...
//			ignore_wildcard_group
//			owner <text>
//			contact <text>
//			rate <rate>
//			max_wait <duration>
//			mode enforce|report|off
//			pass price|signature...
//			purpose <name>...
//			also_obey <product-token>...
//			preferences annotate|log|deny
//			unknown allow|deny
//		}
//		unidentified deny|allow
//		connect intercept|tunnel|deny [<host-pattern>...]
//		except <host-pattern>... {
//			path <prefix>...
//			agent <name>...
//			until <date>
//			reason <text>
//		}
//		paths strict|as_sent
//		preferences annotate|log|deny
//		unknown allow|deny
//		deny <host-pattern>...
//		max_wait <duration>
//		egress off
//	}
func (h *Handler) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	fresh := func() *Handler { return &Handler{known: h.Agents} }
	return block.Segment(d, h, fresh, (*Handler).read, (*Handler).policy)
}

func (h *Handler) read(r *block.Reader) error {
	if r.NextArg() {
		if strings.ContainsAny(r.Val()[:min(len(r.Val()), 1)], "/@*") {
			return r.Errf(`directive "robots" takes no matcher, found %q: `+
				`Caddy would answer what it does not match with an empty 200`, r.Val())
		}
		return r.Errf(`directive "robots" takes no argument, found %q`, r.Val())
	}
	return block.Grammar{
		"mode":         {Min: 1, Max: -1, Repeat: true, Set: h.setMode},
		"clients":      block.List(&h.Clients),
		"agent":        {Min: 1, Max: 1, Repeat: true, Block: h.addAgent},
		"unidentified": block.Text(&h.Unidentified),
		"connect":      {Min: 1, Max: -1, Repeat: true, Set: h.addConnect},
		"except":       {Min: 1, Max: -1, Repeat: true, Block: h.addException},
		"paths":        block.Text(&h.Paths),
		"preferences":  block.Text(&h.Preferences),
		"unknown":      block.Text(&h.Unknown),
		"deny":         block.List(&h.Deny),
		"max_wait":     block.Parsed(&h.MaxWait, block.Optional(block.ParseDuration)),
		"egress":       block.Switch(&h.EgressOff, "off"),
	}.Read(r, "robots")
}

// setMode reads the mode of the gateway or, with patterns, of some hosts.
func (h *Handler) setMode(args []string) error {
	if len(args) == 1 {
		if h.Mode != "" {
			return errors.New("the mode of the gateway is given twice")
		}
		h.Mode = args[0]
		return nil
	}
	h.HostModes = append(h.HostModes, HostModeConfig{Mode: args[0], Hosts: args[1:]})
	return nil
}

func (h *Handler) addAgent(r *block.Reader, args []string) error {
	a := AgentConfig{Agent: enforce.Agent{Name: args[0]}}
	err := block.Grammar{
		"token":                 block.List(&a.Tokens),
		"user_agent":            block.List(&a.UserAgents),
		"credential":            {Min: 2, Max: 2, Repeat: true, Set: a.addCredential},
		"from":                  block.List(&a.From),
		"client_certificate":    block.List(&a.ClientCertificates),
		"ignore_wildcard_group": block.Flag(&a.IgnoreWildcard),
		"owner":                 block.Text(&a.Owner),
		"contact":               block.Text(&a.Contact),
		"rate":                  block.Text(&a.Rate),
		"max_wait":              block.Parsed(&a.MaxWait, block.Optional(block.ParseDuration)),
		"mode":                  block.Text(&a.Mode),
		"pass":                  block.List(&a.Pass),
		"purpose":               block.List(&a.Purposes),
		"also_obey":             block.List(&a.AlsoObey),
		"preferences":           block.Text(&a.Preferences),
		"unknown":               block.Text(&a.Unknown),
	}.Read(r, "agent "+a.Name)
	h.Agents = append(h.Agents, a)
	return err
}

func (a *AgentConfig) addCredential(args []string) error {
	a.Credentials = append(a.Credentials, Credential{User: args[0], Hash: args[1]})
	return nil
}

func (h *Handler) addConnect(args []string) error {
	h.Connect = append(h.Connect, ConnectRule{Mode: args[0], Hosts: args[1:]})
	return nil
}

func (h *Handler) addException(r *block.Reader, args []string) error {
	e := ExceptionConfig{Exception: enforce.Exception{Hosts: args}}
	err := block.Grammar{
		"path":   block.List(&e.Paths),
		"agent":  block.List(&e.Agents),
		"until":  block.Text(&e.Until),
		"reason": block.Text(&e.Reason),
	}.Read(r, "except")
	h.Exceptions = append(h.Exceptions, e)
	return err
}
