package evidence

import (
	"bytes"
	"strconv"
	"strings"
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
