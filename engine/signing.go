package engine

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/follow"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/webbotauth"
)

// maxKeyFile bounds a file of keys, in bytes. It is far more than an agent's keys can take.
const maxKeyFile = 64 << 10

// followKeys reads the keys of a site's agents, and follows their files until ctx ends.
func (e *Engine) followKeys(ctx context.Context, s *SitePolicy) error {
	for _, a := range s.Identifier.Agents() {
		if !a.Signs() {
			continue
		}
		if err := e.signsAlike(a); err != nil {
			return err
		}
		var read webbotauth.Keys // last
		parse := func(data []byte) (keys webbotauth.Keys, err error) {
			if keys, err = webbotauth.ParseKeys(data); err == nil {
				err = e.keys.claim(a, keys)
			}
			if err == nil {
				read = keys
			}
			return keys, err
		}
		file, err := follow.Open(ctx, a.Sign.Keys, maxKeyFile, parse, func(err error) {
			if err != nil {
				e.logger.Error("the keys of an agent cannot be read; the former keys still sign", zap.String("agent", a.Name), zap.Error(err))
				return
			}
			e.logger.Info("the keys of an agent have changed", zap.String("agent", a.Name), zap.Stringers("keys", read))
		})
		if err != nil {
			return fmt.Errorf("agent %q: sign: keys: %w", a.Name, err)
		}
		a.Signer.Keys = file.Value
	}
	return nil
}

// signsAlike fails if an agent of the same name at an earlier site signs with other keys, or has
// its directory elsewhere, because a name has one directory.
func (e *Engine) signsAlike(a *enforce.Agent) error {
	for other := range e.Agents() {
		if other.Signs() && strings.EqualFold(other.Name, a.Name) && (other.Sign.Keys != a.Sign.Keys || other.Signer.Directory != a.Signer.Directory) {
			return fmt.Errorf("agent %q: sign: another site has other keys or another directory for it: want the same", a.Name)
		}
	}
	return nil
}

// agentKeys records the keys of agents, so that no two agents share one. A site that sees one key
// under two names treats both as one crawler.
type agentKeys struct {
	mu sync.Mutex
	of map[*enforce.Agent]webbotauth.Keys
}

// claim records the keys of an agent. It fails if an agent with another name has one of them.
func (k *agentKeys) claim(a *enforce.Agent, keys webbotauth.Keys) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for other, theirs := range k.of {
		if strings.EqualFold(other.Name, a.Name) { // at another site
			continue
		}
		for _, key := range keys {
			if slices.ContainsFunc(theirs, func(t webbotauth.SigningKey) bool { return t.ID == key.ID }) {
				return follow.Elsewhere(fmt.Errorf("key %s is also agent %q's: each agent needs its own key", key, other.Name))
			}
		}
	}
	if k.of == nil {
		k.of = make(map[*enforce.Agent]webbotauth.Keys)
	}
	k.of[a] = keys
	return nil
}

// askedAs is the context key of the agent in whose name a file is fetched.
type askedAs struct{}

// askAs adds the agent with the product token, if there is one, to the context of a fetch.
func (e *Engine) askAs(ctx context.Context, token string) context.Context {
	for _, s := range e.Sites() {
		if a := s.Identifier.AskedAs(token); a != nil {
			return context.WithValue(ctx, askedAs{}, a)
		}
	}
	return ctx
}

// sendAs sends a request of a fetch with the agent's own fields. It signs the request only once
// there is a connection, because connecting takes time.
func sendAs(a *enforce.Agent, o origin.Origin, r *http.Request, transport http.RoundTripper) (*http.Response, error) {
	var out *http.Request
	var signature enforce.Signature
	ctx := httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		signature = a.Signature(out, o, time.Now())
	}})
	out = r.Clone(ctx)
	maps.Copy(out.Header, a.Sends())
	resp, err := transport.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	CountSignature(a, signature, resp.StatusCode)
	return resp, nil
}
