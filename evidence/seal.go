package evidence

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/tlog"
)

// The members that a seal adds.
const (
	sealLog = `"log":"`
	sealSeq = `","seq":`
	maxSeal = 256 // bytes; no seal of a log ID that passes [LogID.Check] is longer
)

// Splice seals a line: it inserts the log ID and the number of the line before the last brace, and
// ends the line. A line that is no JSON object gets only an end. Like append, it may overwrite the
// bytes of the line and the rest of its array.
func Splice(line []byte, id string, seq int64) []byte {
	line = bytes.TrimSuffix(line, []byte("\n"))
	if len(line) < 2 || line[0] != '{' || line[len(line)-1] != '}' {
		return append(line, '\n')
	}
	line = bytes.TrimRight(line[:len(line)-1], " \t\r")
	if len(line) > 1 {
		line = append(line, ',')
	}
	line = append(append(append(line, sealLog...), id...), sealSeq...)
	return append(strconv.AppendInt(line, seq, 10), '}', '\n')
}

// ReadSeal reads the seal of a line, with or without its newline. It accepts only the form that
// [Splice] writes.
func ReadSeal(line []byte) (id string, seq int64, ok bool) {
	line, ok = bytes.CutSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("}"))
	front := max(len(line)-maxSeal, 0) // searching all of a line would be slow: most may have no seal
	i := front + bytes.LastIndex(line[front:], []byte(sealLog))
	if !ok || i < max(front, 1) || line[0] != '{' || line[i-1] != ',' && i > 1 {
		return "", 0, false
	}
	id, digits, _ := strings.Cut(string(line[i+len(sealLog):]), sealSeq)
	seq, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || seq < 0 || strconv.FormatInt(seq, 10) != digits {
		return "", 0, false
	}
	if _, err := ParseLogID(id); err != nil {
		return "", 0, false
	}
	return id, seq, true
}

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

// Notice is a line that the writer adds to the log about the log itself. docs/evidence-format.md
// describes its members, and which notices have them.
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

// ReadNotice returns the notice in a line, which is empty for any other line.
func ReadNotice(line []byte) (says Notice) {
	if !bytes.Contains(line, []byte(`"logger":"`+Logger+`"`)) || json.Unmarshal(line, &says) != nil || says.Robots != nil {
		return Notice{}
	}
	return says
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
