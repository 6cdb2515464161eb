package robotscache

// Source tells where the answer of a [Cache.Lookup] came from. It is the value
// of the access log's field "source" (DESIGN §9).
type Source uint8

const (
	// SourceNone is the zero value: there was no answer.
	SourceNone Source = iota
	// SourceHot is the in-memory hot tier.
	SourceHot
	// SourceStore is the persistent store.
	SourceStore
	// SourceFetch is a robots.txt fetch that this request began.
	SourceFetch
	// SourceWait is work that another request had begun and this one waited for.
	SourceWait
)

// String returns "none", "hot", "store", "fetch" or "wait".
func (s Source) String() string {
	switch s {
	case SourceHot:
		return "hot"
	case SourceStore:
		return "store"
	case SourceFetch:
		return "fetch"
	case SourceWait:
		return "wait"
	default:
		return "none"
	}
}
