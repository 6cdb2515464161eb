package engine

import (
	"sync"

	"github.com/crawlgate/crawlgate/enforce"
)

// killSwitchState is the kill switch of the process, kept over reloads and restarts.
type killSwitchState struct {
	switches enforce.KillSwitch
	inflight inflight // what an order has to end

	mu     sync.Mutex
	loaded bool
	files  stateFolder
}

const killSwitchKey = "kill switch"

var killsFile = stateFile{
	"kills.json", "the orders of the kill switch",
	"and give the orders again that should hold (crawlgate robots deny)",
}

func acquireKillSwitch() (*killSwitchState, error) {
	return acquire(killSwitchKey, func() (*killSwitchState, error) { return new(killSwitchState), nil })
}

func (*killSwitchState) release() error { return release(killSwitchKey) }

// Destruct has nothing to close.
func (*killSwitchState) Destruct() error { return nil }

// load gives the orders that were kept their effect again, once in the life of the process. An
// unreadable file is fatal: starting without it would lift every order.
func (s *killSwitchState) load(folder string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loaded {
		return nil
	}
	s.files.path = folder
	if err := s.files.read(killsFile, &s.switches); err != nil {
		return err
	}
	s.loaded = true
	return nil
}

// KillSwitch has the orders that hold, which no reload resets.
func (e *Engine) KillSwitch() *enforce.KillSwitch { return &e.kills.switches }

// Deny gives an order, ends what it stops and keeps it. It returns the number of requests, tunnels
// and fetches that were ended. An order that cannot be kept holds all the same; the error says so.
func (e *Engine) Deny(order enforce.Kill) (ended int, err error) {
	s := e.kills
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.switches.Set(order); err != nil {
		return 0, err
	}
	ended = s.inflight.stop(&s.switches) // before the disk is waited for
	return ended, s.files.write(killsFile, &s.switches)
}

// Lift ends an order once its end has been written down. Where that fails the order holds on: a
// restart would bring it back.
func (e *Engine) Lift(scope enforce.KillScope, value string) (order enforce.Kill, found bool, err error) {
	s := e.kills
	s.mu.Lock()
	defer s.mu.Unlock()
	var after enforce.KillSwitch
	for _, other := range s.switches.List() {
		_ = after.Set(other) // it was taken before
	}
	if order, found = after.Lift(scope, value); !found {
		return order, false, nil
	}
	if err := s.files.write(killsFile, &after); err != nil {
		return order, true, err
	}
	order, found = s.switches.Lift(scope, value)
	return order, found, nil
}
