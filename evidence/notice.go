package evidence

import (
	"encoding/json"

	"golang.org/x/mod/sumdb/tlog"
)

// Terms are the settings that a log is written with. The writer's notices repeat them, so that an
// audit knows for how long lines are kept.
type Terms struct {
	// Files is how many files are kept besides the newest, and Days for how long; 0 means without
	// limit. SizeMB is the size of a file.
	Files  int `json:"roll_keep"`
	Days   int `json:"roll_keep_days"`
	SizeMB int `json:"roll_size_mb"`
	// A checkpoint is signed every Every seconds, or after Lines lines if that is sooner.
	Every float64 `json:"every"`
	Lines int     `json:"lines"`
}

// Crash is the most lines that a crash can leave without a checkpoint. docs/evidence.md says why.
func (t Terms) Crash() int64 { return 8 * int64(max(t.Lines, 1000)) }

// Logger is the logger name of the notices.
const Logger = "crawlgate.evidence"

// Notice is a line that the writer adds to the log about the log itself. docs/evidence.md describes
// its members, and which notices have them.
type Notice struct {
	Level    string     `json:"level"`
	TS       float64    `json:"ts"`
	Logger   string     `json:"logger"`
	Msg      string     `json:"msg"` // directly after Logger: the sealer searches for both together
	At       string     `json:"at,omitempty"`
	Terms    *Terms     `json:"terms,omitempty"`
	Late     *LateLines `json:"late,omitempty"`
	Reason   string     `json:"reason,omitempty"`
	Previous string     `json:"previous,omitempty"`
	PeerLog  string     `json:"peer_log,omitempty"`
	Size     int64      `json:"size,omitempty"`
	Root     tlog.Hash  `json:"root,omitzero"`
	Note     string     `json:"note,omitempty"`
	Lines    int64      `json:"lines,omitempty"`
	From     string     `json:"from,omitempty"`
	To       string     `json:"to,omitempty"`
	// Robots is set in lines that only look like notices.
	Robots json.RawMessage `json:"robots,omitempty"`
}

// LateLines are lines that a crash left unsealed and the next start sealed.
type LateLines struct {
	From int64  `json:"from"`
	To   int64  `json:"to"`
	Torn int    `json:"torn"`
	File string `json:"file"` // that contains the first of them
}

// Parts of the reason for a new generation, if the log differs from the signed lines, or if more
// lines are unsigned than a crash leaves. The audit recognizes such a generation by them.
const (
	ReasonSigned   = "that were signed"
	ReasonUnsigned = "have no checkpoint"
)
