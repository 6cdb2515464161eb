package audit

import "github.com/crawlgate/crawlgate/enforce"

// twin identifies a request by its line. Several lines about one request come from a second log, or
// from a collector that delivered a line twice.
type twin struct {
	gateway, origin, agent, path, port string
	decided, sent, ended               enforce.Seconds
}

// twins has the last requests, and whether another line was about the same one. It remembers at
// least mostTwins of them.
type twins struct{ last, before map[twin]struct{} }

const mostTwins = 32_768

// again reports whether an earlier line was about the same request. A line without its times or its
// port is about another one.
func (s *twins) again(l *Line) bool {
	r := l.Robots
	if r == nil || r.DecidedAt <= 0 || r.EndedAt <= 0 || l.Request.RemotePort == "" {
		return false
	}
	t := twin{r.Gateway, r.Origin, r.Agent, r.PathSum, l.Request.RemotePort, r.DecidedAt, r.SentAt, r.EndedAt}
	_, last := s.last[t]
	_, before := s.before[t]
	if len(s.last) >= mostTwins {
		s.last, s.before = nil, s.last
	}
	if s.last == nil {
		s.last = make(map[twin]struct{})
	}
	s.last[t] = struct{}{}
	return last || before
}
