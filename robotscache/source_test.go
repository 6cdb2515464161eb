package robotscache_test

import (
	"testing"

	"github.com/crawlgate/crawlgate/robotscache"
)

// The names are values of fields and labels that scripts of users rely on (docs/access-log.md).
func TestNames(t *testing.T) {
	t.Parallel()
	for s, want := range map[robotscache.Source]string{
		robotscache.SourceNone: "none", robotscache.SourceHot: "hot", robotscache.SourceStore: "store",
		robotscache.SourceFetch: "fetch", robotscache.SourceWait: "wait",
	} {
		if s.String() != want {
			t.Errorf("source %d is %q, want %q", s, s, want)
		}
	}
	for d, want := range map[robotscache.Drop]string{
		robotscache.DropWaiter: "waiter", robotscache.DropQueue: "queue",
		robotscache.DropRefresh: "refresh", robotscache.DropUnsaved: "unsaved",
	} {
		if string(d) != want {
			t.Errorf("drop %q, want %q", d, want)
		}
	}
}
