package fetch

import "context"

// Turn lets who starts retrievals bound how many are at work at once without
// counting those that only wait for their servers. A retrieval tells its Turn, if
// the context has one, how it gets on; it begins as if it had asked. A retrieval
// calls its Turn from one goroutine at a time.
type Turn interface {
	// Asked says that the retrieval waits for an answer now, and holds little more
	// than a connection. It is called before each request; dialing comes after it.
	Asked()
	// Answered is called when the first octet of an answer has come. It returns
	// when the retrieval may read it, or when ctx has ended.
	Answered(ctx context.Context)
}

type turnKey struct{}

// WithTurn returns a context for a [Fetcher.Fetch] that keeps to t.
func WithTurn(ctx context.Context, t Turn) context.Context {
	return context.WithValue(ctx, turnKey{}, t)
}

// TurnOf returns the Turn of a context, one that never waits if it has none.
func TurnOf(ctx context.Context) Turn {
	if t, ok := ctx.Value(turnKey{}).(Turn); ok {
		return t
	}
	return anyTime{}
}

// anyTime is the Turn of a retrieval that nobody bounds.
type anyTime struct{}

func (anyTime) Asked() {}

func (anyTime) Answered(context.Context) {}
