package redisclock

import "time"

// watch is the gateway's idea of Redis's clock. Of the last few answers that
// told it the one that came fastest is the best: Redis looked at its clock some
// time between question and answer. Old ones are of no use, as clocks drift
// apart. The zero watch takes Redis's clock for its own.
type watch struct {
	seen [8]sighting
	n    int
}

// sighting is one answer: Redis's time since 1970, when it was that by our
// clock, and by how much that may be wrong.
type sighting struct {
	redis time.Duration
	local time.Time
	error time.Duration
}

// saw is the watch after one more answer, asked for and had at those times.
func (w watch) saw(redis time.Duration, asked, answered time.Time) watch {
	half := answered.Sub(asked) / 2
	w.seen[w.n%len(w.seen)] = sighting{redis: redis, local: asked.Add(half), error: half}
	w.n++
	return w
}

func (w watch) best() sighting {
	if w.n == 0 {
		return sighting{local: time.Unix(0, 0)}
	}
	best := w.seen[0]
	for _, s := range w.seen[1:min(w.n, len(w.seen))] {
		if s.error < best.error {
			best = s
		}
	}
	return best
}

// shared is Redis's time at a time of ours.
func (w watch) shared(local time.Time) time.Duration {
	s := w.best()
	return s.redis + local.Sub(s.local)
}

// local is our time at a time of Redis: not before the first, nor after the
// second.
func (w watch) local(redis time.Duration) (first, last time.Time) {
	s := w.best()
	at := s.local.Add(redis - s.redis)
	return at.Add(-s.error), at.Add(s.error)
}

// fits reports whether an answer agrees with what was seen before: if not, Redis
// is another one, or its clock was set.
func (w watch) fits(redis time.Duration, asked, answered time.Time) bool {
	half := answered.Sub(asked) / 2
	off := w.shared(asked.Add(half)) - redis
	return w.n > 0 && off.Abs() <= half+w.best().error+drift
}

// drift is how far two clocks may part between one answer and the next.
const drift = time.Millisecond

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
