package preferences

// Vocabulary names the texts that this package reads by. It belongs into the note on a log's
// schema, as both drafts still move.
const Vocabulary = "aipref-07"

// The texts, in the versions that were read.
const (
	draftVocab  = "draft-ietf-aipref-vocab-07"
	draftAttach = "draft-ietf-aipref-attach-05"
)

// The purposes of the normal form. Other names are free: a label that nobody here knows is a
// purpose of its own.
const (
	Search  = "search"
	AIInput = "ai-input"
	TrainAI = "train-ai"
	Archive = "archive"
	TDM     = "tdm"
)

// labels are the purposes with the words for them: the label of Content-Usage
// (draft-ietf-aipref-vocab-07 section 6.1) and that of Content-Signal
// (draft-romm-aipref-contentsignals-00 section 4, contentsignals.org), "" where there is none.
// Their order is that of a Set.
var labels = []struct{ purpose, usage, signal string }{
	{Search, "search", "search"},
	{AIInput, "", "ai-input"},
	{TrainAI, "train-ai", "ai-train"},
	{Archive, "", ""},
	{TDM, "", ""},
}

// The key of Content-Signal whose value is a level.
const useKey = "use"

// maxPurpose is the length of the longest purpose.
const maxPurpose = 64

// rankOf orders purposes: those of the table, then all others.
func rankOf(purpose string) int {
	for i := range labels {
		if labels[i].purpose == purpose {
			return i
		}
	}
	return len(labels)
}

// ofUsage returns the purpose of a label of Content-Usage. A label that is the name of one of our
// purposes but not its label there is unknown to the vocabulary, which must be ignored: "".
func ofUsage(label string) string {
	return purposeOf(label, func(i int) string { return labels[i].usage })
}

// ofSignal returns the purpose of a label of Content-Signal in lower case, "" as ofUsage.
func ofSignal(label string) string {
	return purposeOf(label, func(i int) string { return labels[i].signal })
}

func purposeOf(label string, word func(i int) string) string {
	for i := range labels {
		if word(i) == label && label != "" {
			return labels[i].purpose
		}
	}
	if rankOf(label) < len(labels) || !IsPurpose(label) {
		return ""
	}
	return label
}

// IsPurpose reports whether a name can be a purpose: a key of RFC 9651 section 3.1.2, of at most 64
// bytes.
func IsPurpose(s string) bool {
	if s == "" || len(s) > maxPurpose || s[0] != '*' && (s[0] < 'a' || s[0] > 'z') {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' && c != '.' && c != '*' {
			return false
		}
	}
	return true
}
