package adminapi

import (
	"context"
	"net/url"

	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/evidence/writer"
)

// listEvidence tells how the access logs are sealed.
func listEvidence(context.Context, *engine.Engine, url.Values) (Evidence, error) {
	return Evidence{append([]writer.Status{}, engine.SealedLogs()...)}, nil
}
