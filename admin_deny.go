package crawlgate

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
)

// adminOrders lists the orders in force.
func adminOrders(e *engine.Engine, r *http.Request) (any, error) {
	if _, err := readQuery(r); err != nil {
		return nil, err
	}
	list := e.KillSwitch().List()
	if list == nil {
		list = []enforce.Kill{}
	}
	return adminapi.Orders{Orders: list}, nil
}

// adminDeny puts an order in force. Before it answers, all that the order stops has been told to end.
func adminDeny(e *engine.Engine, r *http.Request) (any, error) {
	var request adminapi.OrderRequest
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
	if order.Scope == enforce.KillAgent && !request.Force {
		if err := knowsAgent(e, order.Value); err != nil {
			return nil, err
		}
	}
	ended, err := e.Deny(order)
	switch {
	case errors.Is(err, enforce.ErrTooManyKills):
		return nil, adminError(http.StatusConflict, "%w", err)
	case err != nil:
		return nil, fmt.Errorf("the order holds, but a restart will forget it: %w; make room on the disk, and give it again", err)
	}
	return adminapi.OrderGiven{Order: order, Ended: ended}, nil
}

// knowsAgent refuses a name that no sender at any gateway can have: the order would stop nobody.
func knowsAgent(e *engine.Engine, name string) error {
	var names []string
	for _, h := range e.Sites() {
		if h.Identifier.Knows(name) {
			return nil
		}
		names = append(names, h.Identifier.Agents()...)
	}
	if len(names) == 0 {
		return adminError(http.StatusBadRequest, "agent %.100q is no product token: want a single word without version", name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	hint := "there is "
	if near := nearNames(names, name); len(near) > 0 {
		names, hint = near, "near it is "
	}
	if len(names) > maxNamed {
		names = append(names[:maxNamed:maxNamed], "…")
	}
	return adminError(http.StatusBadRequest, "no agent %.100q is configured: %s%s; with force the order is given all the same",
		name, hint, strings.Join(names, ", "))
}

// maxNamed bounds the agents that a refusal names.
const maxNamed = 20

// nearNames returns the names that a slip of the finger makes of another one: those at most a third
// of whose letters differ, or that begin with it.
func nearNames(names []string, name string) (near []string) {
	name = strings.ToLower(name)
	for _, n := range names {
		lower := strings.ToLower(n)
		if strings.HasPrefix(lower, name) || strings.HasPrefix(name, lower) || edits(lower, name) <= max(len(name), len(n))/3 {
			near = append(near, n)
		}
	}
	return near
}

// edits is the Levenshtein distance of two texts in octets: the fewest insertions, deletions and
// replacements.
func edits(a, b string) int {
	row := make([]int, len(b)+1) // from the beginning of a to each beginning of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
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
func adminUndeny(e *engine.Engine, r *http.Request) (any, error) {
	query, err := readQuery(r, "scope", "value")
	if err != nil {
		return nil, err
	}
	order, err := canonicalOrder(enforce.Kill{Scope: enforce.KillScope(query.Get("scope")), Value: query.Get("value")})
	if err != nil {
		return nil, err
	}
	lifted, found, err := e.Lift(order.Scope, order.Value)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the order still holds, because its end cannot be written down: %w; make room on the disk, and lift it again", err)
	case !found:
		return nil, adminError(http.StatusNotFound, "there is no such order: %s", order)
	}
	return adminapi.OrderLifted{Order: lifted}, nil
}
