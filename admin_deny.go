package crawlgate

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
)

// orders are those of the kill switch that are in force, oldest first.
type orders struct {
	Orders []enforce.Kill `json:"orders"`
}

// adminOrders lists the orders in force.
func adminOrders(a *App, r *http.Request) (any, error) {
	if _, err := readQuery(r); err != nil {
		return nil, err
	}
	list := a.kills().List()
	if list == nil {
		list = []enforce.Kill{}
	}
	return orders{list}, nil
}

// orderRequest is an order as it is given.
type orderRequest struct {
	Scope  enforce.KillScope `json:"scope"`
	Value  string            `json:"value"`
	By     string            `json:"by"`
	Reason string            `json:"reason"`
}

// orderGiven is the answer to an order.
type orderGiven struct {
	Order enforce.Kill `json:"order"`
	// Ended is how many requests, tunnels and fetches were under way and were ended by it.
	Ended int `json:"ended"`
}

// orderLifted is the answer to the end of an order.
type orderLifted struct {
	Order enforce.Kill `json:"order"`
}

// adminDeny puts an order in force. Before it answers, all that the order stops has been told to end.
func adminDeny(a *App, r *http.Request) (any, error) {
	var request orderRequest
	if err := readJSON(r, &request); err != nil {
		return nil, err
	}
	order := enforce.Kill{
		Scope: request.Scope, Value: request.Value, By: request.By, Reason: request.Reason,
		At: time.Now().UTC().Truncate(time.Second),
	}
	order, err := canonicalOrder(order)
	if err != nil {
		return nil, err
	}
	ended, err := a.stops.set(order)
	switch {
	case errors.Is(err, enforce.ErrTooManyKills):
		return nil, adminError(http.StatusConflict, "%w", err)
	case err != nil:
		return nil, fmt.Errorf("the order is in force, but a restart will forget it: %w", err)
	}
	return orderGiven{order, ended}, nil
}

// canonicalOrder checks an order by trying it where it does no harm.
func canonicalOrder(order enforce.Kill) (enforce.Kill, error) {
	var trial enforce.KillSwitch
	if err := trial.Set(order); err != nil {
		return order, adminError(http.StatusBadRequest, "%w", err)
	}
	return trial.List()[0], nil
}

// adminUndeny takes an order out of force.
func adminUndeny(a *App, r *http.Request) (any, error) {
	query, err := readQuery(r, "scope", "value")
	if err != nil {
		return nil, err
	}
	order, err := canonicalOrder(enforce.Kill{Scope: enforce.KillScope(query.Get("scope")), Value: query.Get("value")})
	if err != nil {
		return nil, err
	}
	lifted, found, err := a.stops.lift(order.Scope, order.Value)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the order is lifted, but a restart will bring it back: %w", err)
	case !found:
		return nil, adminError(http.StatusNotFound, "there is no such order: %s", describeOrder(order))
	}
	return orderLifted{lifted}, nil
}
