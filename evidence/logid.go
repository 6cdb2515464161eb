package evidence

import (
	"fmt"
	"path"
	"strconv"
	"strings"
)

// LogID names one tree of a log. It is the first line of the tree's checkpoints, which C2SP
// tlog-checkpoint calls the origin, and the name of the key that signs them. The zero value names
// nothing.
type LogID struct {
	Gateway string
	Log     string
	// Generation counts from 1. A new key or a lost state begins the next one.
	Generation int
}

// String returns gateway/log/generation.
func (i LogID) String() string {
	return i.Gateway + "/" + i.Log + "/" + strconv.Itoa(i.Generation)
}

// WithoutGeneration returns gateway/log/ of the text of a log ID.
func WithoutGeneration(logID string) string { return strings.TrimRight(logID, "0123456789") }

// maxGeneration makes sure that the next generation fits an int, whatever a line claims.
const maxGeneration = 1e9

// ParseLogID reads what String writes. The gateway may contain slashes. No part contains a space, a
// quote, a backslash or a plus, which separates the parts of a verifier key.
func ParseLogID(s string) (LogID, error) {
	rest, generation := path.Split(s)
	gateway, log := path.Split(strings.TrimSuffix(rest, "/"))
	n, err := strconv.Atoi(generation)
	id := LogID{strings.TrimSuffix(gateway, "/"), log, n}
	if err != nil || n < 1 || n > maxGeneration || id.String() != s {
		return LogID{}, fmt.Errorf("%.100q is no log ID: want gateway/log/generation", s)
	}
	return id, id.Check()
}

// Check returns an error if a name is invalid.
func (i LogID) Check() error {
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
