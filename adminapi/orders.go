package adminapi

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/aymanbagabas/go-udiff/lcs"

	"github.com/crawlgate/crawlgate/cluster"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/version"
)

func listOrders(_ context.Context, e *engine.Engine, _ struct{}) (Orders, error) {
	return Orders{append([]enforce.Stop{}, e.Stops().InForce(time.Now(), e.Config.AllowFor)...)}, nil
}

// Deny gives an order. Before it answers, it has told everything that the order stops to end.
func Deny(ctx context.Context, e *engine.Engine, request OrderRequest) (given OrderGiven, err error) {
	order, err := enforce.Stop{
		ID: rand.Text(), Scope: request.Scope, Value: request.Value, By: authorOf(ctx, request.By), Reason: request.Reason,
		At: time.Now().UTC().Truncate(time.Second),
	}.Canonical()
	if err != nil {
		return given, badRequest(badOrder, err)
	}
	if agent := order.Agent(); agent != "" && !request.Force {
		if err := checkAgent(e, agent, ErrNeedsForce); err != nil {
			return given, err
		}
	}
	return give(ctx, e, order)
}

// Allow gives an exception at run time. It must not last longer than the operator permits.
func Allow(ctx context.Context, e *engine.Engine, request AllowRequest) (given OrderGiven, err error) {
	longest, by := e.Config.AllowFor, authorOf(ctx, request.By)
	if longest == 0 {
		return given, fault(http.StatusForbidden, "this gateway takes no exceptions at run time: its option allow_for is off")
	}
	order, err := enforce.NewAllow(request.Agent, request.Host, request.Paths, request.Until)
	if err == nil {
		order.ID, order.At = rand.Text(), time.Now().UTC().Truncate(time.Second)
		order.By, order.Ticket, order.Reason = by, request.Ticket, request.Reason
		order, err = order.Canonical()
	}
	last := order.At.Add(longest)
	switch {
	case err != nil:
		return given, badRequest("%w", err)
	case !time.Now().Before(order.Until):
		return given, badRequest("until %s is over", request.Until)
	case order.Until.After(last):
		return given, badRequest("until %s is too late: an exception at run time lasts %s at most, until %s: see the option allow_for",
			request.Until, inDays(longest), last.Format(time.RFC3339))
	}
	if err := checkAgent(e, order.Agent(), nil); err != nil {
		return given, err
	}
	return give(ctx, e, order)
}

// inDays is a duration in days, or as Go writes it if they are not whole.
func inDays(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d == day:
		return "1 day"
	case d%day == 0:
		return fmt.Sprintf("%d days", d/day)
	}
	return d.String()
}

// give gives a canonical order to this gateway and to the fleet.
func give(ctx context.Context, e *engine.Engine, order enforce.Stop) (given OrderGiven, err error) {
	ended, err := e.Deny(order)
	if errors.Is(err, enforce.ErrTooManyStops) {
		return given, fault(http.StatusConflict, "%w", err)
	}
	report := e.Fleet().Given(ctx, order.ID, ended)
	if err != nil {
		return given, fmt.Errorf("the order is in force, but a restart will forget it: %w; make room on the disk, and give it again", err)
	}
	return OrderGiven{order, ended, report}, nil
}

// Undeny ends the order with a scope and a value.
func Undeny(ctx context.Context, e *engine.Engine, request LiftRequest) (ended OrderLifted, err error) {
	order, err := enforce.Stop{Scope: request.Scope, Value: request.Value, By: authorOf(ctx, request.By)}.Canonical()
	if err != nil {
		return ended, badRequest(badOrder, err)
	}
	lifted, found, err := e.Lift(order, enforce.Lift{By: order.By, At: time.Now().UTC().Truncate(time.Second)})
	switch {
	case found && order.Scope == enforce.StopAllow: // it has ended, even if err is set
	case err != nil:
		return ended, fmt.Errorf("the order is still in force, because its end cannot be saved: %w; "+
			"make room on the disk, and lift it again", err)
	case !found:
		order.By = "" // it would be the author of the order
		held := []string{}
		for _, o := range e.Stops().InForce(time.Now(), e.Config.AllowFor) {
			held = append(held, strings.TrimSpace(string(o.Scope)+" "+o.Value))
		}
		return ended, fault(http.StatusNotFound, "there is no such order: %s; stopped: %s", order, cmp.Or(listed(held), "nothing"))
	}
	report := e.Fleet().Given(ctx, cluster.LiftOf(lifted.ID), 0)
	if err != nil {
		return ended, fmt.Errorf("the exception has ended, but a restart may bring it back: %w; "+
			"make room on the disk, and give or lift any order: that saves its end too", err)
	}
	return OrderLifted{lifted, order.By, report}, nil
}

// ListGateways lists the fleet or, without one, this gateway.
func ListGateways(ctx context.Context, e *engine.Engine, _ struct{}) (Gateways, error) {
	if f := e.Fleet(); f != nil {
		gateways, state := f.Gateways(ctx)
		return Gateways{true, state.Up, e.Config.Fleet.Expect, state.Version, state.Pending, gateways, state.Unlisted}, nil
	}
	self := cluster.Self{Name: e.Config.Name, Version: version.Read()}
	return Gateways{Gateways: []cluster.Gateway{{Self: self, Orders: len(e.Stops().List())}}}, nil
}

const badOrder = "adding a stop: %w"

// maxNamed bounds the agents that a refusal names.
const maxNamed = 20

// checkAgent refuses a name that no sender at any gateway can have: the order would hit nobody.
// hint is the last part of the error, if it is not nil.
func checkAgent(e *engine.Engine, name string, hint error) error {
	for _, site := range e.Sites() {
		if site.Identifier.Knows(name) {
			return nil
		}
	}
	names := AgentNames(e)
	if len(names) == 0 {
		return badRequest(unknownAgent, name)
	}
	if hint == nil {
		return badRequest("no agent %.100q is configured: %s", name, meant(names, name))
	}
	return badRequest("no agent %.100q is configured: %s; %w", name, meant(names, name), hint)
}

// ErrNeedsForce is the last part of the error for an order that can be forced.
var ErrNeedsForce = errors.New("with force the order is given anyway")

// meant names the known names that a mistyped name may stand for.
func meant(names []string, name string) string {
	if near := NearNames(names, name); len(near) > 0 {
		return "near it is " + listed(near)
	}
	return "there is " + listed(names)
}

// ListAgents lists the configured agents, with the keys of those that sign.
func ListAgents(_ context.Context, e *engine.Engine, _ struct{}) (Agents, error) {
	answer, now := Agents{Agents: append([]string{}, AgentNames(e)...), Keys: make(map[string][]AgentKey)}, time.Now()
	for a := range e.Agents() {
		if a.Signs() {
			answer.Keys[a.Name] = KeysAt(a.Signer.Keys(), now)
		}
	}
	return answer, nil
}

// AgentNames are the names of the agents of all sites, in order.
func AgentNames(e *engine.Engine) (names []string) {
	for a := range e.Agents() {
		names = append(names, a.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func namesOf(id *enforce.Identifier) (names []string) {
	for _, a := range id.Agents() {
		names = append(names, a.Name)
	}
	return names
}

// NearNames returns the names that a mistyped one may stand for: at most a third of the letters
// differ, or two letters of a short name, or one begins with the other.
func NearNames(names []string, name string) (near []string) {
	name = strings.ToLower(name)
	for _, n := range names {
		lower, longest := strings.ToLower(n), max(len(name), len(n))
		if strings.HasPrefix(lower, name) || strings.HasPrefix(name, lower) ||
			edits(lower, name) <= max(longest/3, min(2, longest/2)) {
			near = append(near, n)
		}
	}
	return near
}

// edits returns how many letters must be inserted, deleted or replaced to turn one text into the
// other.
func edits(a, b string) (n int) {
	for _, d := range lcs.DiffRunes([]rune(a), []rune(b)) {
		n += max(d.End-d.Start, d.ReplEnd-d.ReplStart)
	}
	return n
}
