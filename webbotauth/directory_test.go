package webbotauth

import (
	"crypto/ed25519"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"
)

// TestDirectory checks the directory of appendix B of the draft: each published key signs, and no
// secret is shown.
func TestDirectory(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	keys := Keys{generate(t, time.Time{}, now), generate(t, time.Time{}, now.Add(time.Hour)), generate(t, now.Add(time.Minute), time.Time{})}
	header, body := keys.Directory("Bot.Example:443", now)
	if header.Get("Content-Type") != MediaType || strings.Contains(string(body), `"d"`) {
		t.Errorf("the directory has the header %v and the body %s, want its media type and no secret", header, body)
	}
	var set jwkSet
	if err := json.Unmarshal(body, &set); err != nil || len(set.Keys) != 2 || set.Keys[0].ID != keys[1].ID || set.Keys[1].From != now.Add(time.Minute).Unix() {
		t.Fatalf("the directory is %s, %v", body, err)
	}
	inputs, err := httpsfv.UnmarshalDictionary(header["Signature-Input"])
	if err != nil {
		t.Fatal(err)
	}
	signatures, err := httpsfv.UnmarshalDictionary(header["Signature"])
	if err != nil || len(inputs.Names()) != 2 {
		t.Fatal(inputs.Names(), err)
	}
	for i, name := range inputs.Names() {
		input, _ := inputs.Get(name)
		member, _ := signatures.Get(name)
		item, _ := member.(httpsfv.Item)
		signature, _ := item.Value.([]byte)
		base := "\"@authority\";req: bot.example\n\"content-digest\": " + header.Get("Content-Digest") + "\n\"@signature-params\": " + marshal(t, input)
		public, _ := keys[i+1].private.Public().(ed25519.PublicKey)
		if !ed25519.Verify(public, []byte(base), signature) {
			t.Errorf("the signature with key %s does not verify", name)
		}
	}
}
