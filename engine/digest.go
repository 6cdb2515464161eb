package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
)

// ConfigDigest names the configuration of the engine and all its sites: gateways and times with one
// digest had the same rules of the operator. It is the first 16 hexadecimal digits of a SHA-256. It
// may be called once all sites are provisioned.
func (e *Engine) ConfigDigest() string { return e.digest() }

func (e *Engine) digestSources() string {
	sites := e.Sites()
	sources := make([]string, 0, len(sites)+1)
	for _, s := range sites {
		sources = append(sources, string(s.Source))
	}
	slices.Sort(sources) // Caddy provisions servers in no order
	h := sha256.New()
	for _, s := range append(sources, string(e.Config.Source)) {
		h.Write([]byte(s))
		h.Write([]byte{0}) // is in no JSON text
	}
	return hex.EncodeToString(h.Sum(nil)[:8])
}
