package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/origin"
)

// stopState holds the stops of the process, over reloads and restarts.
type stopState struct {
	held enforce.Stops

	mu     sync.Mutex
	loaded bool
	folder string // of the file
	former bool   // stops of 0.1.0 must be imported
	keptStops
}

// keptStops is the content of the file.
type keptStops struct {
	kept  enforce.StopSet
	whole int64 // bytes of its first line; 0: the whole file must be written
	size  int64 // bytes of the file
}

var (
	stopsFile = stateFile{
		"stops.json", "the stops of the operator",
		"and order again the stops that should hold (crawlgate robots deny)",
	}
	// killsFile is where 0.1.0 kept the stops.
	killsFile = stateFile{"kills.json", stopsFile.holds, stopsFile.remedy}
)

// movedStops is in killsFile beside stopsFile, where 0.1.0 would start without the stops. The error
// of 0.1.0 shows the first 80 characters of a malformed id.
const movedStops = `{"version":1,"kills":[],"lifted":{"a later release keeps the stops in stops.json, which 0.1 does not read":{}}}`

// readStops reads the stops in a folder, and reports whether some of them are from 0.1.0.
func readStops(folder string) (s keptStops, former bool, err error) {
	var old enforce.StopSet
	err = stopsFile.decode(folder, func(data []byte) (err error) {
		if bytes.HasSuffix(data, []byte("\n")) { // otherwise a crash has cut it off
			s.whole, s.size = int64(bytes.IndexByte(data, '\n'))+1, int64(len(data))
		}
		s.kept, err = readSets(data)
		return err
	})
	if err := errors.Join(err, killsFile.decode(folder, func(data []byte) error {
		if string(bytes.TrimSpace(data)) == movedStops {
			return nil
		}
		return json.Unmarshal(data, &old)
	})); err != nil {
		return s, false, err
	}
	s.kept, err = s.kept.Merge(old, time.Now())
	return s, len(old.Held)+len(old.Lifted) > 0, err
}

// readSets reads a set and the additions after it, one per line. A crash may cut off the last line.
// Its order was never acknowledged, so it is left out.
func readSets(data []byte) (all enforce.StopSet, err error) {
	data = bytes.TrimRight(data, "\x00") // some file systems leave zeros
	all.Lifted = make(map[string]enforce.Lift)
	for lines, n := json.NewDecoder(bytes.NewReader(data)), 0; ; n++ {
		var some enforce.StopSet
		end := lines.InputOffset()
		err := lines.Decode(&some)
		switch {
		case n > 0 && errors.Is(err, io.ErrUnexpectedEOF):
			caddy.Log().Error("the last order in "+stopsFile.name+" was cut off by a crash, and is not in force: it had not been acknowledged",
				zap.ByteString("order", bytes.TrimSpace(data[end:])))
			fallthrough
		case n > 0 && errors.Is(err, io.EOF):
			return enforce.StopSet{}.Merge(all, time.Now())
		case err != nil:
			return all, err
		}
		all.Held = append(all.Held, some.Held...)
		maps.Copy(all.Lifted, some.Lifted)
	}
}

// write saves the stops. Each change becomes a line at the end of the file. Once these lines are
// longer than the first line, which has the older stops, write rewrites the file. The file of 0.1.0
// is replaced only when its stops are in the new one.
func (s *stopState) write(stops enforce.StopSet) error {
	if s.folder == "" {
		return nil
	}
	path := filepath.Join(s.folder, stopsFile.name)
	if more := stops.Since(s.kept); s.whole > 0 {
		if len(more.Held)+len(more.Lifted) == 0 {
			return nil
		}
		line, _ := json.Marshal(more) // texts and times: it cannot fail
		size := s.size + int64(len(line)) + 1
		if size <= 2*s.whole && addTo(path, s.size, append(line, '\n')) == nil {
			s.kept, s.size = stops, size
			return nil
		}
	}
	s.whole = 0
	if err := stopsFile.write(s.folder, stops); err != nil {
		return err
	}
	if info, err := os.Stat(path); err == nil {
		s.kept, s.whole, s.size = stops, info.Size(), info.Size()
	}
	return killsFile.write(s.folder, json.RawMessage(movedStops))
}

var errChanged = errors.New("another program has changed the file")

// addTo appends a line to a file of size bytes. When it returns nil, the line is on the disk.
func addTo(path string, size int64, line []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	if info, statErr := f.Stat(); statErr != nil || info.Size() != size {
		return errors.Join(errChanged, f.Close())
	}
	if _, err = f.Write(line); err == nil {
		err = f.Sync()
	}
	if err != nil {
		_ = f.Truncate(size) // otherwise the whole file, which is written next, replaces it
	}
	return errors.Join(err, f.Close())
}

// Destruct leaves the file as a single line, which former releases can read.
func (s *stopState) Destruct() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.size == s.whole {
		return nil
	}
	if info, err := os.Stat(filepath.Join(s.folder, stopsFile.name)); s.whole > 0 && (err != nil || info.Size() != s.size) {
		return errors.Join(errChanged, err) // it may have orders that are unknown here
	}
	s.whole = 0
	return s.write(s.held.All())
}

// load restores the saved stops, once in the life of the process. An unreadable file is fatal,
// because starting without it would lift every stop. The same applies to an unreadable file in a
// new folder of the store, see follow.
func (s *stopState) load(folder string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.loaded && s.folder == folder {
		return nil
	}
	kept, former, err := readStops(folder)
	if err != nil || s.loaded {
		return err
	}
	s.folder, s.former, s.keptStops = folder, former, kept
	if err := s.held.Update(func(enforce.StopSet) (enforce.StopSet, error) { return kept.kept, nil }); err != nil {
		return err
	}
	s.loaded = true
	return nil
}

// follow keeps the stops in another folder from now on, because the store has moved there. Stops
// that are already there are in force too, unless they were lifted since. It also imports those of
// 0.1.0.
func (s *stopState) follow(folder string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.folder == folder && !s.former {
		return nil
	}
	s.folder, s.former, s.whole = folder, false, 0
	kept, _, err := readStops(folder)
	_, mergeErr := s.mergeLocked(kept.kept)
	return errors.Join(err, mergeErr)
}

// Stops returns the stops in force, which no reload resets.
func (e *Engine) Stops() *enforce.Stops { return &e.stops.held }

// Deny applies an order, ends the requests that it stops, and saves it. It returns the number of
// requests, tunnels and fetches that it ended. An order that cannot be saved is in force anyway;
// the error says so.
func (e *Engine) Deny(order enforce.Stop) (ended int, err error) {
	s := e.stops
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.held.Set(order); err != nil {
		return 0, err
	}
	for _, n := range underWay.stop(&s.held) { // before waiting for the disk
		ended += n
	}
	return ended, s.write(s.held.All())
}

// Lift saves and then ends the orders with the scope and value of a canonical one, and returns the
// newest. If it cannot save the lift, the stops stay in force, because a restart would bring them
// back. Exceptions end anyway, because no permission may outlive its lift.
func (e *Engine) Lift(order enforce.Stop, lift enforce.Lift) (lifted enforce.Stop, found bool, err error) {
	s := e.stops
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.held.Update(func(before enforce.StopSet) (after enforce.StopSet, _ error) {
		if after, lifted, found = before.Lift(order, lift); !found {
			return before, nil
		}
		if err = s.write(after); order.Scope == enforce.StopAllow {
			return after, nil
		}
		return after, err
	})
	return lifted, found, err
}

// merge applies the orders of other gateways, ends the requests that they stop, and saves them. It
// returns how many requests, tunnels and fetches each order ended. The orders are in force even if
// merge returns an error.
func (s *stopState) merge(other enforce.StopSet) (ended map[string]int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mergeLocked(other)
}

func (s *stopState) mergeLocked(other enforce.StopSet) (ended map[string]int, err error) {
	var full error
	err = s.held.Update(func(o enforce.StopSet) (enforce.StopSet, error) {
		o, full = o.Merge(other, time.Now())
		return o, nil
	})
	ended = underWay.stop(&s.held)
	return ended, errors.Join(err, full, s.write(s.held.All()))
}

// register has everything in progress: requests from before their decision to the last byte of
// their answer, tunnels, and fetches of robots.txt. It counts the requests and tunnels of each
// agent, and a stop ends the entries that it covers.
//
// Requests register before they are decided, and an order takes effect before it looks through the
// register, so no request slips through.
//
// The zero value is ready for use. It is safe for concurrent use.
type register struct {
	mu      sync.Mutex
	entries map[*InFlight]struct{}
	open    map[entriesOf]int // a kind and agent without entries has no key
}

// entriesOf identifies the entries of one kind of one agent.
type entriesOf struct {
	kind  entryKind
	agent string
}

// underWay is the register of the process. It outlives reloads.
var underWay register

// entryKind is the kind of an entry.
type entryKind int

const (
	fetchEntry entryKind = iota
	requestEntry
	tunnelEntry
)

// maxTunnels bounds the open tunnels of one agent.
const maxTunnels = 16384

// InFlight is one entry of the register. A nil entry is in no register.
type InFlight struct {
	in     *register
	kind   entryKind
	origin origin.Origin
	agent  string // the name for stops; empty for a fetch, which has no agent
	cancel context.CancelCauseFunc

	stopped bool // no order can end it any more; guarded by in.mu
}

// EnterRequest registers a request of an agent for as long as it runs, or fails if the agent
// already has the most it may have. agent is its name for stops. The returned context ends when an
// order stops the request, see [StoppedBy]. In a fleet, the request first waits for the orders, see
// [cluster.Fleet.AwaitOrders]. The caller must call Leave.
func (e *Engine) EnterRequest(ctx context.Context, o origin.Origin, agent string) (context.Context, *InFlight, error) {
	e.Fleet().AwaitOrders(ctx)
	return underWay.enter(ctx, &InFlight{kind: requestEntry, origin: o, agent: agent}, e.Config.Limits.RequestsPerAgent)
}

// EnterTunnel does the same for a tunnel. An order ends only blind tunnels. In other tunnels it
// ends the requests inside, which are registered too.
func (e *Engine) EnterTunnel(ctx context.Context, o origin.Origin, agent string, blind bool) (context.Context, *InFlight, error) {
	e.Fleet().AwaitOrders(ctx)
	return underWay.enter(ctx, &InFlight{kind: tunnelEntry, origin: o, agent: agent, stopped: !blind}, maxTunnels)
}

func (r *register) enter(outer context.Context, e *InFlight, limit int) (context.Context, *InFlight, error) {
	ctx, cancel := context.WithCancelCause(outer)
	e.in, e.cancel = r, cancel
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open[entriesOf{e.kind, e.agent}] >= limit {
		cancel(nil)
		return outer, nil, fmt.Errorf("%d %s", limit, map[entryKind]string{requestEntry: "requests are under way", tunnelEntry: "tunnels are open"}[e.kind])
	}
	if r.entries == nil {
		r.entries, r.open = make(map[*InFlight]struct{}), make(map[entriesOf]int)
	}
	r.entries[e] = struct{}{}
	r.open[entriesOf{e.kind, e.agent}]++
	return ctx, e, nil
}

// Leave removes the entry from the register and ends its context.
func (e *InFlight) Leave() {
	if e == nil {
		return
	}
	defer e.cancel(nil)
	e.in.mu.Lock()
	defer e.in.mu.Unlock()
	if _, in := e.in.entries[e]; !in {
		return
	}
	delete(e.in.entries, e)
	of := entriesOf{e.kind, e.agent}
	if e.in.open[of]--; e.in.open[of] == 0 {
		delete(e.in.open, of)
	}
}

// Cancel ends the context of the entry for a reason other than an order.
func (e *InFlight) Cancel(why error) { e.cancel(why) }

// stop ends all entries that the orders cover, and returns how many each order ended, by its id. It
// cancels nothing under the lock.
func (r *register) stop(stops *enforce.Stops) (ended map[string]int) {
	ended = make(map[string]int)
	var requests, fetches []func()
	r.mu.Lock()
	for e := range r.entries {
		order, matches := stops.Match(e.origin, e.agent)
		if e.stopped || !matches {
			continue
		}
		e.stopped = true
		ended[order.ID]++
		end := func() { e.cancel(&StoppedError{order}) }
		if e.kind == fetchEntry {
			fetches = append(fetches, end)
		} else {
			requests = append(requests, end)
		}
	}
	r.mu.Unlock()
	// Requests come first, so that a request that waits for a fetch ends because of the order, and
	// not because its fetch has ended.
	for _, end := range append(requests, fetches...) {
		end()
	}
	return ended
}

// WouldEnd counts the requests, tunnels and fetches that a canonical stop would end now, and their
// agents.
func WouldEnd(order enforce.Stop) (entries, agents int) {
	var stops enforce.Stops
	_ = stops.Set(order) // it is canonical
	names := make(map[string]bool)
	underWay.mu.Lock()
	defer underWay.mu.Unlock()
	for e := range underWay.entries {
		if _, matches := stops.Match(e.origin, e.agent); matches && !e.stopped {
			entries++
			names[e.agent] = true
		}
	}
	delete(names, "") // the fetches
	return entries, len(names)
}

// StoppedError is the cause of a context that a stop ended.
type StoppedError struct{ Order enforce.Stop }

// Error names the order, with its author and reason.
func (e *StoppedError) Error() string { return "stopped while under way: " + e.Order.String() }

// StoppedBy returns the order that ended a context, or nil.
func StoppedBy(ctx context.Context) *StoppedError {
	stop, _ := errors.AsType[*StoppedError](context.Cause(ctx))
	return stop
}
