package testorigin

import (
	"net/http"
	"slices"
	"time"
)

// Exchange is the record of one request and its answer, of a TLS handshake that
// failed, or of bytes that are no request. Method is empty for the last two.
type Exchange struct {
	// Seq numbers exchanges in order of arrival over all sites of the server.
	Seq uint64
	// Site is the site's origin as a string.
	Site string
	// Conn numbers the connection within the server.
	Conn uint64
	// Start is when the request's head had arrived, End when the behaviour was
	// done. End, like Sent, Err and the fields of the request's body, is zero until then: for a while after the client has the last byte. After
	// Server.Close all have ended.
	Start, End time.Time
	// Arrived is when the last segment of the request's head came, on Linux as the
	// kernel says: on a busy machine long before the process reads it, and Start
	// with it. The gaps between requests are measured by it.
	Arrived time.Time
	// Method, Target and Proto are the request line's bytes as they came.
	Method, Target, Proto string
	// Path is the target without query, and without authority if it had one.
	Path string
	// Host is the Host field, Header all fields. Header must not be changed.
	Host   string
	Header http.Header
	// Trailer has the fields after a chunked request body, BodySize its bytes.
	Trailer  http.Header
	BodySize int64
	// Behaviour is the name of the behaviour that answered.
	Behaviour string
	// Version is the version of the site's robots behaviour that was in force at Start:
	// the one that answered if Path is /robots.txt.
	Version int
	// Status is the last status sent, 0 if none was. It is there before its first
	// byte. Sent counts bytes sent, head included and TLS not.
	Status int
	Sent   int64
	// Err says how the exchange ended before the behaviour was played to its end;
	// for resets and failed handshakes always.
	Err string
}

// Robots reports whether robots.txt was asked for.
func (e Exchange) Robots() bool { return e.Path == robotsPath }

// Change is the record of one [Site.SetRobots].
type Change struct {
	// Version and From are the version and the moment it came into force.
	Version int
	From    time.Time
	// Behaviour is the behaviour's name; Meaning and Rules are its own.
	Behaviour string
	Meaning   Meaning
	Rules     []byte
}

// Exchanges returns the site's exchanges in order of arrival: as many of the
// latest as Config.RecordSize.
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

// Dropped returns how many exchanges the record has lost to its bound. An oracle
// that needs them all has to check that it is zero.
func (s *Site) Dropped() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exchanges.dropped()
}

// History returns the behaviours of /robots.txt in the order they were set: as
// many of the latest as Config.RecordSize. The last is in force.
func (s *Site) History() []Change {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.history.all()
}

// InForce returns the behaviours of /robots.txt that were in force at any moment
// from first to last, both included, in order.
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

// begin records the arrival of an exchange and returns where.
func (s *Site) begin(e Exchange) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.Seq = s.server.lastSeq.Add(1)
	e.Site = s.origin.String()
	return s.exchanges.push(e)
}

// noteStatus records a status before it is sent, so that a client that has seen
// it finds it in the record.
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
