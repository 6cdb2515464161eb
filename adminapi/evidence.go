package adminapi

import (
	"context"
	"net/url"

	"github.com/crawlgate/crawlgate/engine"
)

// listEvidence tells how the access logs are sealed.
func listEvidence(context.Context, *engine.Engine, url.Values) (any, error) {
	list := Evidence{Logs: []SealedLog{}}
	for _, s := range engine.SealedLogs() {
		log := SealedLog{
			Name: s.Name, Identity: s.Identity, VKey: s.VKey, File: s.File, State: s.State,
			Size: s.Size, Unsealed: s.Unsealed, Checkpoint: s.Checkpoint, SignedAt: s.Time.UTC(),
			Witnesses: s.Witnesses, Unwitnessed: s.Unwitnessed,
		}
		if s.Error != nil {
			log.Error = s.Error.Error()
		}
		list.Logs = append(list.Logs, log)
	}
	return list, nil
}
