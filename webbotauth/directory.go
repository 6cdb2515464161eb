package webbotauth

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// MediaType is the media type of a directory.
const MediaType = "application/http-message-signatures-directory+json"

const (
	// directoryAge is how long a site may use a directory without a new request. A new key must be
	// in it longer than that before it signs.
	directoryAge = time.Hour
	// directoryValid is how long the signatures of a directory are valid, for services that pass it
	// on.
	directoryValid = 24 * time.Hour
)

// Directory returns the header and body of the directory at a time, for a request to an authority
// (RFC 9421 section 2.2.3). Each of its keys signs it, so that nobody can show it under another
// name (appendix B of the draft).
func (k Keys) Directory(authority string, now time.Time) (header http.Header, body []byte) {
	published := k.Published(now)
	set := jwkSet{Keys: []jwk{}}
	for _, key := range published {
		set.Keys = append(set.Keys, key.public())
	}
	body, _ = json.Marshal(set) // strings and numbers always marshal
	sum := sha256.Sum256(body)
	digest := "sha-256=:" + base64.StdEncoding.EncodeToString(sum[:]) + ":"
	header = http.Header{
		"Content-Type": {MediaType}, "Content-Digest": {digest},
		"Cache-Control":               {fmt.Sprintf("public, max-age=%d", int(directoryAge.Seconds()))},
		"Access-Control-Allow-Origin": {"*"},
	}
	inputs, signatures := make([]string, 0, len(published)), make([]string, 0, len(published))
	for i, key := range published {
		var m message
		m.add(`"@authority";req`, strings.TrimSuffix(strings.ToLower(authority), ":443"))
		m.add(`"content-digest"`, digest)
		input, signature := m.sign(key, fmt.Sprintf("key%d", i+1), validity(key, "http-message-signatures-directory", now, directoryValid))
		inputs, signatures = append(inputs, input), append(signatures, signature)
	}
	header.Set("Signature-Input", strings.Join(inputs, ", "))
	header.Set("Signature", strings.Join(signatures, ", "))
	return header, body
}
