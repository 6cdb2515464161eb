package crawlgate

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

func init() {
	caddy.RegisterModule(adminAPI{})
}

// adminAPI is what the gateway adds to Caddy's admin endpoint, below /robots/: what is known of origins, why a request
// would be refused, the kill switch, the clocks. It speaks for the configuration in force. Who may reach it is Caddy's
// business (admin in the global options). docs/admin-api.md describes it.
type adminAPI struct{}

// CaddyModule returns the Caddy module information.
func (adminAPI) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.robots", New: func() caddy.Module { return new(adminAPI) }}
}

// Provision implements caddy.Provisioner. Caddy makes the admin endpoint of a configuration that it is going to start, before
// the apps, and none of one that it only checks. The endpoint serves on when the configuration is then refused, so it must
// have the metrics already.
func (adminAPI) Provision(ctx caddy.Context) error {
	engine.Starting(ctx)
	return engine.RegisterMetrics(ctx.GetMetricsRegistry())
}

// adminMethod answers one method of one path. What it returns is sent as JSON, but for an adminText.
type adminMethod func(e *engine.Engine, r *http.Request) (any, error)

// adminRoutes are the paths below adminapi.Prefix and their methods. HEAD goes with GET.
var adminRoutes = map[string]map[string]adminMethod{
	"origins": {http.MethodGet: adminOrigins},
	"origin":  {http.MethodGet: adminOrigin},
	"body":    {http.MethodGet: adminBody},
	"diff":    {http.MethodGet: adminDiff},
	"explain": {http.MethodGet: adminExplain},
	"purge":   {http.MethodPost: adminPurge},
	"refresh": {http.MethodPost: adminRefresh},
	"deny":    {http.MethodGet: adminOrders, http.MethodPost: adminDeny, http.MethodDelete: adminUndeny},
	"clocks":  {http.MethodGet: adminClocks},
	"unblock": {http.MethodPost: adminUnblock},
}

// Routes implements caddy.AdminRouter.
func (adminAPI) Routes() []caddy.AdminRoute {
	routes := make([]caddy.AdminRoute, 0, 1+len(adminRoutes))
	routes = append(routes, caddy.AdminRoute{Pattern: adminapi.Prefix, Handler: caddy.AdminHandlerFunc(adminUnknown)})
	for path, methods := range adminRoutes {
		routes = append(routes, caddy.AdminRoute{Pattern: adminapi.Prefix + path, Handler: adminHandler(methods)})
	}
	return routes
}

// adminUnknown answers for a path that is none.
func adminUnknown(http.ResponseWriter, *http.Request) error {
	paths := make([]string, 0, len(adminRoutes))
	for path := range adminRoutes {
		paths = append(paths, adminapi.Prefix+path)
	}
	slices.Sort(paths)
	return adminError(http.StatusNotFound, "there is nothing at this path; there is %s", strings.Join(paths, ", "))
}

// adminText is an answer that is sent as it is.
type adminText []byte

// adminHandler answers for one path.
func adminHandler(methods map[string]adminMethod) caddy.AdminHandlerFunc {
	allow := make([]string, 0, len(methods)+1)
	for method := range methods {
		allow = append(allow, method)
		if method == http.MethodGet {
			allow = append(allow, http.MethodHead)
		}
	}
	slices.Sort(allow)
	return func(w http.ResponseWriter, r *http.Request) error {
		name := r.Method
		if name == http.MethodHead {
			name = http.MethodGet
		}
		method, ok := methods[name]
		if !ok {
			w.Header().Set("Allow", strings.Join(allow, ", "))
			return adminError(http.StatusMethodNotAllowed, "method %.20q: want %s", r.Method, strings.Join(allow, ", "))
		}
		e := engine.Current()
		if e == nil {
			return adminError(http.StatusServiceUnavailable, "no gateway runs: the configuration has no robots handler")
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxAdminBody)
		answer, err := method(e, r)
		if err != nil {
			return adminFault(err)
		}
		writeAnswer(w, answer)
		return nil
	}
}

// writeAnswer sends what a method returned.
func writeAnswer(w http.ResponseWriter, answer any) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if text, ok := answer.(adminText); ok {
		w.Header().Set("Content-Type", plainText)
		w.Header().Set("Content-Length", strconv.Itoa(len(text)))
		_, _ = w.Write(text) // a client that has left needs no answer
		return
	}
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(answer) // as above: strings, numbers and times always marshal
}

// adminError is an answer that says what is wrong.
func adminError(status int, format string, args ...any) error {
	return caddy.APIError{HTTPStatus: status, Err: fmt.Errorf(format, args...)}
}

// adminFault gives an error from below its status.
func adminFault(err error) error {
	if fault, ok := errors.AsType[caddy.APIError](err); ok {
		return fault
	}
	status := http.StatusInternalServerError
	_, isForbidden := errors.AsType[*robotscache.ForbiddenError](err)
	switch {
	case errors.Is(err, robotscache.ErrNotFound):
		status = http.StatusNotFound
	case isForbidden:
		status = http.StatusConflict
	case errors.Is(err, robotscache.ErrUnavailable), errors.Is(err, robotscache.ErrClosed), errors.Is(err, robotscache.ErrPending):
		status = http.StatusServiceUnavailable
	}
	return caddy.APIError{HTTPStatus: status, Err: err}
}

// maxAdminBody bounds what is read of a request.
const maxAdminBody = 64 << 10

// readJSON reads the body of a request into v. It takes one JSON object with the fields of v, and nothing else.
func readJSON(r *http.Request, v any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(v)
	if err == nil {
		if _, more := decoder.Token(); more != io.EOF {
			err = errors.New("there is something behind the JSON object")
		}
	}
	switch tooLarge, isTooLarge := errors.AsType[*http.MaxBytesError](err); {
	case err == nil:
		return nil
	case isTooLarge:
		return adminError(http.StatusBadRequest, "the body has more than %d octets", tooLarge.Limit)
	case errors.Is(err, io.EOF):
		return adminError(http.StatusBadRequest, "the body is empty: want a JSON object")
	}
	return adminError(http.StatusBadRequest, "the body is not what is wanted: %w", err)
}

// readQuery reads the query of a request, which may have each of the given parameters once, and no others.
func readQuery(r *http.Request, known ...string) (url.Values, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, adminError(http.StatusBadRequest, "the query cannot be read: %w", err)
	}
	for name, values := range query {
		switch {
		case !slices.Contains(known, name):
			return nil, adminError(http.StatusBadRequest, "unknown parameter %.50q: want %s", name, cmp.Or(strings.Join(known, ", "), "none"))
		case len(values) > 1:
			return nil, adminError(http.StatusBadRequest, "parameter %s is given %d times", name, len(values))
		}
	}
	return query, nil
}

// pageSize reads the parameter limit.
func pageSize(query url.Values) (int, error) {
	if !query.Has("limit") {
		return adminapi.DefaultPage, nil
	}
	n, err := strconv.Atoi(query.Get("limit"))
	if err != nil || n < 1 || n > adminapi.MaxPage {
		return 0, adminError(http.StatusBadRequest, "limit %.20q: want a number from 1 to %d", query.Get("limit"), adminapi.MaxPage)
	}
	return n, nil
}

func readOrigin(text string) (origin.Origin, error) {
	o, err := adminapi.ParseOrigin(text)
	if err != nil {
		return o, adminError(http.StatusBadRequest, "%w", err)
	}
	return o, nil
}

// Interface guards.
var (
	_ caddy.AdminRouter = adminAPI{}
	_ caddy.Provisioner = adminAPI{}
)
