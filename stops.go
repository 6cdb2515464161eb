package crawlgate

import (
	"fmt"
	"sync"

	"github.com/caddyserver/caddy/v2"

	"github.com/crawlgate/crawlgate/enforce"
)

// stops is the kill switch of the process, kept over reloads and restarts.
type stops struct {
	switches enforce.KillSwitch
	underway underway // what an order has to end

	mu     sync.Mutex
	loaded bool
	book   notebook
}

const stopsKey = "kill switch"

var stopsPage = notePage{
	"kills.json", "the orders of the kill switch",
	"and give the orders again that should hold (crawlgate robots deny)",
}

func acquireStops() (*stops, error) {
	value, _, err := pool.LoadOrNew(stopsKey, func() (caddy.Destructor, error) { return new(stops), nil })
	if err != nil {
		return nil, err
	}
	s, ok := value.(*stops)
	if !ok {
		return nil, fmt.Errorf("usage pool holds a %T under %q", value, stopsKey)
	}
	return s, nil
}

func (*stops) release() error {
	_, err := pool.Delete(stopsKey)
	return err
}

// load puts in force what was kept, once in the life of the process. Who cannot read it does not know what was stopped,
// and must not start.
func (s *stops) load(folder string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loaded {
		return nil
	}
	s.book.folder = folder
	if err := s.book.read(stopsPage, &s.switches); err != nil {
		return err
	}
	s.loaded = true
	return nil
}

// set puts an order in force, ends what it stops, of which it returns the number, and keeps it. An order that cannot be
// kept is in force all the same; the error says so.
func (s *stops) set(order enforce.Kill) (ended int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.switches.Set(order); err != nil {
		return 0, err
	}
	ended = s.underway.stop(&s.switches) // before the disk is waited for
	return ended, s.book.write(stopsPage, &s.switches)
}

// lift ends an order once its end has been written down. Where that fails the order holds on: a
// restart would bring it back.
func (s *stops) lift(scope enforce.KillScope, value string) (order enforce.Kill, found bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var after enforce.KillSwitch
	for _, other := range s.switches.List() {
		_ = after.Set(other) // it was taken before
	}
	if order, found = after.Lift(scope, value); !found {
		return order, false, nil
	}
	if err := s.book.write(stopsPage, &after); err != nil {
		return order, true, err
	}
	order, found = s.switches.Lift(scope, value)
	return order, found, nil
}

// Destruct has nothing to close.
func (*stops) Destruct() error { return nil }
