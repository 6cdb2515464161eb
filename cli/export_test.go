package cli

import (
	"context"
	"io"

	"github.com/crawlgate/crawlgate/enforce"
)

// The limits of Answer in the command.
const (
	MaxQuestion = maxQuestion
	MaxParsed   = maxParsed
)

// Endpoint returns the address at which commands find a gateway. PackagedSocket is the one of the
// packages, and PackagedConfig their Caddyfile.
var (
	Endpoint                       = endpoint
	PackagedSocket, PackagedConfig = &packagedSocket, &packagedConfig
)

// TargetOf returns the part of a URL that is matched.
var TargetOf = targetOf

// Answer is `check --jsonl` with other limits.
func Answer(ctx context.Context, in io.Reader, out io.Writer, maxQuestion, maxParsed int) (failed bool, err error) {
	a := answerer{paths: enforce.PathsAsSent, maxQuestion: maxQuestion, maxParsed: maxParsed}
	return a.run(ctx, in, out)
}
