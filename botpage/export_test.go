package botpage

import (
	"fmt"
	"time"

	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/origin"
)

// ReadingOf returns what an agent's page says about the robots.txt of a URL's origin, or an empty
// string.
func ReadingOf(e *engine.Engine, agent, url string) string {
	site, id, _ := e.Agent(agent)
	target, err := origin.ParseTarget(url)
	if err != nil {
		return err.Error()
	}
	r, known := view{e, site, id}.reading(target, time.Now())
	if !known {
		return ""
	}
	return fmt.Sprint(r.State, " ", len(r.SHA256), " ", r.Allowed, " ", r.Delay, " ", r.Obeyed)
}
