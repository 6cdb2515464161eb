package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"syscall"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/pflag"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/boltstore"
)

// texts is the source of the texts behind log lines: a [robotscache.Store] that is only read.
type texts interface {
	audit.Texts
	Load(ctx context.Context, k fetch.Key) (fetch.Record, error)
}

// textFlags say where the texts behind log lines are.
type textFlags struct{ store, gateway string }

func (c *textFlags) addTo(f *pflag.FlagSet) {
	f.StringVar(&c.store, "store", "", "file of the store, which no gateway may have open")
	gatewayFlag(f, &c.gateway, anEndpoint)
}

// open opens the source of the texts, which the caller closes: the gateway or, if none runs and
// none was named, the store of a gateway with default settings.
func (c *textFlags) open(ctx context.Context) (source texts, closeTexts func(), err error) {
	var unasked error
	path := c.store
	switch {
	case c.store != "" && c.gateway != "":
		return nil, nil, misused("--store and --gateway exclude each other")
	case c.store == "":
		client, err := newAdminClient(endpoint(c.gateway))
		if err == nil {
			// An unreachable gateway is reported once, not for each text.
			_, err = client.do(ctx, get("origins", url.Values{"limit": {"1"}}))
		}
		nobody := errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
		if !nobody || c.gateway != "" || os.Getenv(gatewayVariable) != "" {
			return gatewayTexts{client}, func() {}, err
		}
		unasked, path = err, filepath.Join(caddy.AppDataDir(), "crawlgate", "robots.db")
	}
	reader, err := boltstore.Open(boltstore.Config{Path: path, ReadOnly: true})
	switch {
	case errors.Is(err, boltstore.ErrLocked) && unasked == nil:
		return nil, nil, fmt.Errorf("%w; if that is a gateway, name its admin endpoint: --gateway %s", err, endpoint(""))
	case err != nil && unasked != nil:
		return nil, nil, fmt.Errorf("%w; nor is there a store, which --store names: %w", unasked, err)
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

// orNotFound turns the answer 404 into the error of a store.
func orNotFound(err error) error {
	if isNotFound(err) {
		return fmt.Errorf("%w: %w", robotscache.ErrNotFound, err)
	}
	return err
}
