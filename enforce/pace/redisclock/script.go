package redisclock

import (
	"context"
	_ "embed" // the scripts
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/crawlgate/crawlgate/enforce/pace"
)

var (
	//go:embed reserve.lua
	reserveSource string
	//go:embed release.lua
	releaseSource string
	//go:embed late.lua
	lateSource string
	//go:embed block.lua
	blockSource string
	//go:embed unblock.lua
	unblockSource string
	//go:embed heartbeat.lua
	heartbeatSource string

	reserveScript   = rueidis.NewLuaScript(reserveSource)
	releaseScript   = rueidis.NewLuaScript(releaseSource)
	lateScript      = rueidis.NewLuaScript(lateSource)
	blockScript     = rueidis.NewLuaScript(blockSource)
	unblockScript   = rueidis.NewLuaScript(unblockSource)
	heartbeatScript = rueidis.NewLuaScript(heartbeatSource)
)

// token is what Release needs to know of a reservation.
type token struct {
	keys []string
	slot time.Duration // on Redis's clock, since 1970
}

// micros is the unit of the scripts. Waits and intervals are rounded up, so that
// no slot comes early.
func micros(d time.Duration) string {
	if d < 0 {
		return "-1"
	}
	return strconv.FormatInt(int64((d+time.Microsecond-1)/time.Microsecond), 10)
}

func reserveArgs(demands []pace.Demand, maxWait time.Duration) []string {
	args := make([]string, 0, 1+5*len(demands))
	args = append(args, micros(maxWait))
	for _, d := range demands {
		args = append(args, micros(d.Interval), micros(d.Tolerance), micros(d.Delay), micros(d.Debt), micros(d.Ago))
	}
	return args
}

// reservation reads the answer of reserve.lua, but for the time of the slot.
func reservation(answer []int64, keys []string, demands []pace.Demand) (pace.Reservation, error) {
	if len(answer) != 5 {
		return pace.Reservation{}, fmt.Errorf("reserve script answered %d values, want 5", len(answer))
	}
	r := pace.Reservation{
		Wait:    time.Duration(answer[1]) * time.Microsecond,
		Blocked: time.Duration(answer[3]) * time.Microsecond,
	}
	if i := int(answer[4]); i >= 1 && i <= len(demands) {
		r.BlockedKey = demands[i-1].Key
	}
	switch answer[0] {
	case 1:
		r.Outcome = pace.Booked
		r.Token = token{keys: keys, slot: time.Duration(answer[2]) * time.Microsecond}
	case 2:
		r.Outcome = pace.NotYet
	default:
		r.Outcome = pace.TooLate
	}
	return r, nil
}

// census is what a heartbeat tells.
type census struct {
	time        time.Duration // of Redis, since 1970
	count, rank int
	since       time.Duration // at least one of them was always there
	alone       bool          // one of those that came then had been on its own
}

func (k *Clock) heartbeat(ctx context.Context, c rueidis.Client) (census, error) {
	beat := k.config.Heartbeat
	keys := []string{k.gateways(), k.gateways() + ":since"}
	args := []string{k.config.Name, micros(leaseBeats * beat), micros(aloneBeats * beat), micros(joinBeats * beat), "0"}
	if s := k.state.Load(); !s.up && (s.used || time.Since(s.away) > (joinBeats+1)*beat) {
		args[4] = "1"
	}
	answer, err := heartbeatScript.Exec(ctx, c, keys, args).AsIntSlice()
	if err != nil {
		return census{}, fmt.Errorf("sending a heartbeat to redis: %w", err)
	}
	if len(answer) != 5 {
		return census{}, fmt.Errorf("sending a heartbeat to redis: script answered %d values, want 5", len(answer))
	}
	return census{
		time:  time.Duration(answer[0]) * time.Microsecond,
		count: int(answer[1]),
		rank:  int(answer[2]),
		since: time.Duration(answer[3]) * time.Microsecond,
		alone: answer[4] != 0,
	}, nil
}
