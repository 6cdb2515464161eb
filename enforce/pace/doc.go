// Package pace keeps one clock a host, so that all crawlers of a company
// together never ask more of a site than the operator and the site allow.
//
// A [Pacer] grants slots. [Pacer.Acquire] returns at once when the clock is
// free, holds the caller for a bounded time when it is not, and refuses with
// the exact time to come back ([Refused]) when holding would take too long. A
// refused or cancelled request uses no slot.
//
// Four things are kept for each key:
//
//   - a rate: GCRA, the generic cell rate algorithm, one timestamp (Limit.Interval, Limit.Burst);
//   - a gap: the Crawl-delay, the least time between two requests (Limit.Delay);
//   - a number of places for requests in flight (Limit.Concurrency), one of which is
//     left for another agent;
//   - a block: the time before which the site, by 429 or 503, asked not to be visited ([Pacer.Blocked]).
//
// # Who goes next
//
// Nothing is charged to a clock before the moment a request goes out. Those who
// wait stand in a line; one of them has the turn and sleeps, in its own
// goroutine, until the clock is ready for it. When it leaves without going, the
// next one has the turn and the same slot: a slot is never lost and never
// given twice. The turn goes from agent to agent by self-clocked fair queueing,
// so a busy host's time is shared by weight between the agents that want it,
// however many requests each of them has waiting.
//
// An agent that is refused keeps its place for a while, without a slot: else
// those that ask again all the time would take the turn of those that come back
// when they were told to.
//
// # Several gateways
//
// With a [Shared] clock each gateway keeps its own lines, and who is next there
// books its slot at the shared clock. Without it, when it cannot be reached, each
// gateway takes every Nth turn of the time they have in common, N being the last
// known number of gateways.
//
// # Bounds
//
// Waiting requests are bounded for each key and in all; keys are bounded too,
// and beyond that bound unknown keys share overflow clocks: less than they may
// have, never more. Keys that carry no information any more are swept a few at
// a time. There is no goroutine and no timer for a key.
package pace
