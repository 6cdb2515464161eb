package query

import (
	"context"
	"io"
)

// TargetOf returns the part of a URL that is matched.
var TargetOf = targetOf

// RunWithin is Run with other bounds.
func RunWithin(ctx context.Context, in io.Reader, out io.Writer, maxLine, cacheBytes int) (bool, error) {
	return run(ctx, in, out, answerer{room: cacheBytes}, maxLine)
}
