package adminapi

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/internal/linediff"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotstxt"
)

type bodyRequest struct {
	SHA256 string `json:"sha256"`
}

// showBody returns a text by its hash, which is the sha256 in the access log.
func showBody(ctx context.Context, e *engine.Engine, request bodyRequest) (plainText, error) {
	sha, err := parseHash("sha256", request.SHA256)
	if err != nil {
		return nil, err
	}
	body, err := textOf(ctx, e, sha)
	return plainText(body), err
}

func textOf(ctx context.Context, e *engine.Engine, sha [32]byte) ([]byte, error) {
	body, err := e.Cache().Body(ctx, sha)
	if err != nil {
		return nil, fmt.Errorf("reading text %x: %w", sha, err)
	}
	return body, nil
}

func parseHash(name, text string) (sha fetch.Sum, err error) {
	if sha.UnmarshalText([]byte(text)) == nil {
		return sha, nil
	}
	return sha, badRequest("%s %.70q: want the SHA-256 of a text in 64 hexadecimal digits", name, text)
}

// diffContext is how many unchanged lines a hunk shows around its changes.
const diffContext = 3

// CompareTexts compares two versions of an origin's text, by default the last two.
func CompareTexts(ctx context.Context, e *engine.Engine, request DiffRequest) (TextDiff, error) {
	o, err := Resolve(ctx, e, request.Origin)
	if err != nil {
		return TextDiff{}, err
	}
	versions, err := history(ctx, e, fetch.Key{Origin: o, Agent: request.As})
	if err != nil {
		return TextDiff{}, err
	}
	pair, err := pick(o, versions, request.From, request.To)
	if err != nil {
		return TextDiff{}, err
	}
	var texts [2][]byte
	for i, v := range pair {
		if texts[i], err = textOf(ctx, e, v.SHA256); err != nil {
			return TextDiff{}, err
		}
		texts[i] = texts[i][:min(len(texts[i]), robotstxt.MaxSize)] // no parser reads the rest
	}
	hunks := linediff.Compare(texts[0], texts[1], diffContext)
	for _, h := range hunks {
		for i, line := range h.Lines {
			h.Lines[i] = escape.Unprintable(line)
		}
	}
	return TextDiff{Origin: o.String(), From: pair[0], To: pair[1], Hunks: append([]linediff.Hunk{}, hunks...)}, nil
}

// pick finds an older and a newer text in a history, which has the newest version first: those with
// the given hashes; by default the newest one, and the one before.
func pick(o origin.Origin, history []robotscache.Version, from, to string) (pair [2]robotscache.Version, err error) {
	newer, err := find(o, history, "to", to)
	if err != nil {
		return pair, err
	}
	pair[1] = history[newer]
	if from != "" {
		older, err := find(o, history, "from", from)
		if err == nil {
			pair[0] = history[older]
		}
		return pair, err
	}
	older, ok := olderText(history, newer)
	if !ok {
		return pair, fault(http.StatusNotFound, "no earlier text of %s is kept", o)
	}
	pair[0] = older
	return pair, nil
}

// olderText returns the newest version before the one at an index that has another text.
func olderText(history []robotscache.Version, i int) (older robotscache.Version, ok bool) {
	for _, v := range history[i+1:] {
		if v.SHA256 != [32]byte{} && v.SHA256 != history[i].SHA256 {
			return v, true
		}
	}
	return older, false
}

// HasChange reports whether [CompareTexts] can compare the version at an index of the history with
// an older one.
func (d *OriginDetail) HasChange(i int) bool {
	_, ok := olderText(d.History, i)
	return ok && d.History[i].SHA256 != [32]byte{}
}

// find returns the index of the version with the given hash, or of the newest one that has a text.
func find(o origin.Origin, history []robotscache.Version, name, hash string) (int, error) {
	wanted := func(v robotscache.Version) bool { return v.SHA256 != [32]byte{} }
	if hash != "" {
		sha, err := parseHash(name, hash)
		if err != nil {
			return 0, err
		}
		wanted = func(v robotscache.Version) bool { return v.SHA256 == sha }
	}
	if i := slices.IndexFunc(history, wanted); i >= 0 {
		return i, nil
	}
	return 0, fault(http.StatusNotFound, "%s: %s has no such version", name, o)
}
