package cli

import (
	"context"
	"io"

	"github.com/crawlgate/crawlgate/enforce"
)

// The bounds of Answer as it is used.
const (
	MaxQuestion = maxQuestion
	MaxParsed   = maxParsed
)

// Endpoint is where commands find a gateway, PackagedSocket the one of the packages, whose Caddyfile
// is PackagedConfig.
var (
	Endpoint                       = endpoint
	PackagedSocket, PackagedConfig = &packagedSocket, &packagedConfig
)

// TargetOf returns the part of a URL that is matched.
var TargetOf = targetOf

// Answer is `check --jsonl` with other bounds.
func Answer(ctx context.Context, in io.Reader, out io.Writer, maxQuestion, maxParsed int) (failed bool, err error) {
	a := answerer{paths: enforce.PathsAsSent, maxQuestion: maxQuestion, maxParsed: maxParsed}
	return a.run(ctx, in, out)
}
