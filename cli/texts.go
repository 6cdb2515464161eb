package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/pflag"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/boltstore"
)

// texts are what lines rest on: a [robotscache.Store] that is only read.
type texts interface {
	audit.Texts
	Load(ctx context.Context, k fetch.Key) (fetch.Record, error)
}

// textFlags say where the texts are that lines rest on.
type textFlags struct{ store, gateway string }

func (c *textFlags) addTo(f *pflag.FlagSet) {
	f.StringVar(&c.store, "store", "", "file of the store; default: the one of a gateway with default settings")
	f.StringVar(&c.gateway, "gateway", "", "ask a running gateway at its admin endpoint: host:port, unix//path or a URL")
}

// open opens the source of the texts, which the caller closes.
func (c *textFlags) open(ctx context.Context) (source texts, closeTexts func(), err error) {
	if c.store != "" && c.gateway != "" {
		return nil, nil, errors.New("--store and --gateway exclude each other")
	}
	if c.gateway != "" {
		client, err := newAdminClient(c.gateway)
		if err != nil {
			return nil, nil, fmt.Errorf("--gateway: %w", err)
		}
		// An unreachable gateway is reported once, not for each text.
		_, err = client.do(ctx, get("origins", url.Values{"limit": {"1"}}))
		return gatewayTexts{client}, func() {}, err
	}
	path := c.store
	if path == "" {
		path = filepath.Join(caddy.AppDataDir(), "crawlgate", "robots.db")
	}
	reader, err := boltstore.Open(boltstore.Config{Path: path, ReadOnly: true})
	switch {
	case errors.Is(err, boltstore.ErrLocked):
		return nil, nil, fmt.Errorf("%w; if that is a gateway, name its admin endpoint: --gateway %s", err, caddy.DefaultAdminListen)
	case err != nil:
		return nil, nil, err
	}
	return reader, func() { _ = reader.Close() }, nil // it was only read
}

type gatewayTexts struct{ client *adminClient }

func (g gatewayTexts) Load(ctx context.Context, k fetch.Key) (fetch.Record, error) {
	d, err := call[adminapi.OriginDetail](ctx, g.client, get("origin", url.Values{"origin": {k.Origin.String()}, "as": {k.Agent}}))
	if err != nil {
		return fetch.Record{}, orNotFound(err)
	}
	r := d.Record.Record
	text, ok := r.Text()
	if !ok {
		return r, nil
	}
	body, err := g.Body(ctx, text.SHA256)
	if err == nil {
		err = r.SetBody(body)
	}
	return r, err
}

func (g gatewayTexts) Body(ctx context.Context, sha [32]byte) ([]byte, error) {
	body, err := g.client.do(ctx, get("body", url.Values{"sha256": {hex.EncodeToString(sha[:])}}))
	if err == nil && sha256.Sum256(body) != sha {
		return nil, fmt.Errorf("the gateway's text %x has another hash: %w", sha, robotscache.ErrCorrupt)
	}
	return body, orNotFound(err)
}

// orNotFound makes the answer 404 the error of a store.
func orNotFound(err error) error {
	if fault, ok := errors.AsType[caddy.APIError](err); ok && fault.HTTPStatus == http.StatusNotFound {
		return fmt.Errorf("%w: %w", robotscache.ErrNotFound, err)
	}
	return err
}
