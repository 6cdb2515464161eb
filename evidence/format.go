// Package evidence has the forms by which an access log proves itself: the identity of a log, the
// seal of a line, the Merkle tree over the lines (RFC 6962 section 2.1), its tiles on disk (C2SP
// tlog-tiles) and its signed checkpoints (C2SP tlog-checkpoint v1.0.0). docs/evidence.md describes
// them.
package evidence

import (
	"bytes"
	"fmt"
	"path"
	"strconv"
	"strings"
)

// Identity names one tree: the origin line of its checkpoints and the name of the key that signs
// them. The zero value is none.
type Identity struct {
	Gateway string
	Log     string
	// Generation counts from 1. A new key and lost state begin the next one.
	Generation int
}

// String gives gateway/log/generation.
func (i Identity) String() string {
	return i.Gateway + "/" + i.Log + "/" + strconv.Itoa(i.Generation)
}

// LogOf is an identity without its generation.
func LogOf(identity string) string { return strings.TrimRight(identity, "0123456789") }

// maxGeneration keeps the next one a number, whatever a line claims.
const maxGeneration = 1e9

// ParseIdentity reads what String writes. The gateway may hold slashes; no part holds a blank, a
// plus (signed notes separate the parts of a key by it), a quote or a backslash.
func ParseIdentity(s string) (Identity, error) {
	rest, generation := path.Split(s)
	gateway, log := path.Split(strings.TrimSuffix(rest, "/"))
	n, err := strconv.Atoi(generation)
	id := Identity{strings.TrimSuffix(gateway, "/"), log, n}
	if err != nil || n < 1 || n > maxGeneration || id.String() != s {
		return Identity{}, fmt.Errorf("%.100q is no identity of a log: want gateway/log/generation", s)
	}
	return id, id.Check()
}

// Check reports what is wrong with the names.
func (i Identity) Check() error {
	if !isName(i.Gateway) {
		return fmt.Errorf("name of the gateway %.100q: want visible ASCII characters without plus, quote and backslash", i.Gateway)
	}
	if !isName(i.Log) || strings.ContainsAny(i.Log, "/:*?<>|") || strings.HasPrefix(i.Log, ".") {
		return fmt.Errorf("name of the log %.100q: want a word that a folder can have", i.Log)
	}
	return nil
}

func isName(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' || c == '+' || c == '"' || c == '\\' {
			return false
		}
	}
	return s != "" && len(s) <= 100
}

// The members that a seal adds.
const (
	sealLog = `"log":"`
	sealSeq = `","seq":`
	maxSeal = 256 // bytes; no seal of a name that [Identity.Check] lets pass is longer
)

// Splice seals a line: it puts the identity and the number of the line before the last brace and
// ends the line. A line that is no JSON object is only ended. It may change the bytes of the
// line and beyond, as append does.
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

// ReadSeal reads the seal of a line, with its end or without, as [Splice] writes it and in no other
// form.
func ReadSeal(line []byte) (id string, seq int64, ok bool) {
	line, ok = bytes.CutSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("}"))
	front := max(len(line)-maxSeal, 0) // of what is searched: most lines that are read may have none
	i := front + bytes.LastIndex(line[front:], []byte(sealLog))
	if !ok || i < max(front, 1) || line[0] != '{' || line[i-1] != ',' && i > 1 {
		return "", 0, false
	}
	id, digits, _ := strings.Cut(string(line[i+len(sealLog):]), sealSeq)
	seq, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || seq < 0 || strconv.FormatInt(seq, 10) != digits {
		return "", 0, false
	}
	if _, err := ParseIdentity(id); err != nil {
		return "", 0, false
	}
	return id, seq, true
}
