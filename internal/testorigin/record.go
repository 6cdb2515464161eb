package testorigin

import (
	"net/http"
	"slices"
	"time"
)

// Exchange is the record of a request and its answer, of a TLS handshake that failed, or of bytes
// that are not a request. Method is empty for the last two.
type Exchange struct {
	// Seq numbers exchanges in order of arrival over all sites of the server.
	Seq uint64
	// Site is the site's origin as a string.
	Site string
	// Conn numbers the connection within the server.
	Conn uint64
	// Start is when the request's head arrived, End when the behaviour was finished. Until then
	// End, Sent, Err and the fields of the request's body are zero: the client may have the last
	// byte before. After Server.Close all have ended.
	Start, End time.Time
	// Arrived is when the last segment of the request's head arrived, on Linux according to the
	// kernel: on a busy machine long before the process reads it, and so before Start. The gaps
	// between requests are computed from it.
	Arrived time.Time
	// Method, Target and Proto are the unchanged bytes of the request line.
	Method, Target, Proto string
	// Path is the target without query, and without authority if it had one.
	Path string
	// Host is the Host field, and Header has all fields. Header must not be changed.
	Host   string
	Header http.Header
	// Trailer has the fields after a chunked request body, and BodySize is its length.
	Trailer  http.Header
	BodySize int64
	// Behaviour is the name of the behaviour that answered.
	Behaviour string
	// Version is the version of the site's robots behaviour that was in force at Start:
	// the one that answered if Path is /robots.txt.
	Version int
	// Status is the last status sent, or 0. It is set before its first byte is sent. Sent counts
	// the bytes sent, including the head but not TLS.
	Status int
	Sent   int64
	// Err says why the behaviour was not finished; it is always set for resets and failed
	// handshakes.
	Err string
}

// Robots reports whether robots.txt was requested.
func (e Exchange) Robots() bool { return e.Path == robotsPath }

// Change is the record of one [Site.SetRobots].
type Change struct {
	// Version and From are the version and the time from which it was used.
	Version int
	From    time.Time
	// Behaviour is the behaviour's name; Meaning and Rules are its own.
	Behaviour string
	Meaning   Meaning
	Rules     []byte
}

// Exchanges returns the site's exchanges in order of arrival: at most the latest Config.RecordSize.
func (s *Site) Exchanges() []Exchange {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exchanges.all()
}

// RobotsExchanges returns the Exchanges for robots.txt.
func (s *Site) RobotsExchanges() []Exchange {
	return slices.DeleteFunc(s.Exchanges(), func(e Exchange) bool { return !e.Robots() })
}

// PageExchanges returns the Exchanges for anything else.
func (s *Site) PageExchanges() []Exchange {
	return slices.DeleteFunc(s.Exchanges(), func(e Exchange) bool { return e.Method == "" || e.Robots() })
}

// Dropped returns how many exchanges the record has lost to its limit. An oracle that needs all
// must check that it is zero.
func (s *Site) Dropped() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exchanges.dropped()
}

// History returns the behaviours of /robots.txt in the order they were set: at most the latest
// Config.RecordSize. The last is the present one.
func (s *Site) History() []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.history.all()
}

// InForce returns the behaviours of /robots.txt that were used at any time from first to last, both
// included, in order.
func (s *Site) InForce(first, last time.Time) []Change {
	history := s.History()
	end := len(history)
	for end > 0 && history[end-1].From.After(last) {
		end--
	}
	begin := end
	for begin > 0 {
		begin--
		if !history[begin].From.After(first) {
			break
		}
	}
	return history[begin:end]
}

// begin records the arrival of an exchange and returns its place.
func (s *Site) begin(e Exchange) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.Seq = s.server.lastSeq.Add(1)
	e.Site = s.origin.String()
	return s.exchanges.push(e)
}

// noteStatus records a status before it is sent, so that a client that has read it finds it in the
// record.
func (s *Site) noteStatus(x *session, status int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.exchanges.at(x.record); e != nil {
		e.Status = status
	}
}

// end records how the exchange ended.
func (s *Site) end(x *session, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.exchanges.at(x.record)
	if e == nil {
		return
	}
	e.End, e.Sent = s.server.cfg.Now(), x.sent
	if x.request != nil {
		e.Trailer, e.BodySize = x.request.trailer, x.request.bodySize
	}
	if err != nil {
		e.Err = err.Error()
	}
}

// ring keeps the last max items pushed.
type ring[T any] struct {
	max    int
	items  []T
	pushed uint64
}

// push adds an item and returns its number, from 0.
func (r *ring[T]) push(item T) uint64 {
	if len(r.items) < r.max {
		r.items = append(r.items, item)
	} else {
		r.items[r.pushed%uint64(r.max)] = item
	}
	r.pushed++
	return r.pushed - 1
}

// at returns the item with a number, nil if it has been dropped.
func (r *ring[T]) at(number uint64) *T {
	if number < r.dropped() || number >= r.pushed {
		return nil
	}
	return &r.items[number%uint64(r.max)]
}

func (r *ring[T]) dropped() uint64 { return r.pushed - uint64(len(r.items)) }

// all returns a copy of the items, oldest first.
func (r *ring[T]) all() []T {
	if r.dropped() == 0 {
		return slices.Clone(r.items)
	}
	oldest := r.pushed % uint64(r.max)
	return slices.Concat(r.items[oldest:], r.items[:oldest])
}
