// Package pace limits the rate at which all crawlers of a company together ask one host.
//
// A [Pacer] keeps one clock for each key and grants slots. [Pacer.Acquire] returns at once when the
// clock is free, holds the caller for a bounded time when it is not, and refuses with the exact
// time to come back ([Refused]) when holding would take too long. A refused or cancelled request
// uses no slot.
//
// A clock has four parts:
//
//   - a rate: GCRA, the generic cell rate algorithm, one timestamp (Limit.Interval, Limit.Burst);
//   - a gap: the Crawl-delay, the least time between two requests (Limit.Delay);
//   - a number of places for requests in flight (Limit.Concurrency); one agent leaves one place to
//     another;
//   - a block: the time before which the site, by 429, 430 or 503, asked not to be visited
//     ([Pacer.RecordFailure]).
//
// # Order
//
// Nothing is charged to a clock before the moment a request goes out. Requests that must wait stand
// in a queue. The first of them sleeps in its own goroutine until the clock is ready for it. When
// it leaves without going, the next one takes the same slot: a slot is never lost and never given
// twice. Self-clocked fair queueing chooses the first, so agents share a busy host's time evenly,
// however many requests each of them has waiting.
//
// An agent that is refused keeps its position for a while, without a slot. Otherwise agents that
// ask again all the time would starve those that come back when they were told to.
//
// # Several gateways
//
// With a [Shared] clock each gateway keeps its own queues, and the first request of a queue
// reserves its slot at the shared clock. While the shared clock cannot be reached, each of N
// gateways keeps to an Nth of the rate, N being the last known number of gateways.
//
// # Bounds
//
// Waiting requests are bounded for each key and in all. Keys are bounded too: beyond that bound
// requests for unknown keys are refused. Keys that carry no information any more are swept a few at
// a time. No key has a goroutine or a timer of its own.
package pace
