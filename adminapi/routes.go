package adminapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2"

	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/evidence/sealer"
	"github.com/crawlgate/crawlgate/internal/repeated"
	"github.com/crawlgate/crawlgate/robotscache"
)

func init() {
	caddy.RegisterModule(API{})
}

// API answers below /robots/ on Caddy's admin endpoint: see docs/admin-api.md.
type API struct{}

// CaddyModule returns the Caddy module information.
func (API) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "admin.api.robots", New: func() caddy.Module { return new(API) }}
}

// Provision implements caddy.Provisioner. Caddy makes the admin endpoint of a configuration before
// its apps, but only if it will start the configuration. If the configuration is then refused, the
// endpoint stays, so it must already have the metrics.
func (API) Provision(ctx caddy.Context) error {
	if err := checkEndpoint(ctx); err != nil {
		return err
	}
	engine.Starting(ctx)
	return engine.RegisterMetrics(ctx.GetMetricsRegistry())
}

// method answers one method of one path. Its answer is sent as JSON, unless it is a plainText.
type method func(e *engine.Engine, r *http.Request) (any, error)

// plainText is an answer that is sent as text.
type plainText []byte

// routes are the paths below [Prefix] with their methods and parameters. GET includes HEAD.
var routes = map[string]map[string]method{
	"agents":  {http.MethodGet: question(ListAgents)},
	"origins": {http.MethodGet: question(ListOrigins)},
	"origin":  {http.MethodGet: question(ShowOrigin)},
	"body":    {http.MethodGet: question(showBody)},
	"diff":    {http.MethodGet: question(CompareTexts)},
	"explain": {http.MethodGet: question(Explain)},
	"purge":   {http.MethodPost: order(Purge)},
	"refresh": {http.MethodPost: order(Refresh)},
	"allow":   {http.MethodPost: order(Allow)},
	"deny": {
		http.MethodGet: question(listOrders), http.MethodPost: order(Deny), http.MethodDelete: question(Undeny),
	},
	"gateways": {http.MethodGet: question(ListGateways)},
	"clocks":   {http.MethodGet: question(ListClocks)},
	"evidence": {http.MethodGet: question(listEvidence)},
	"unblock":  {http.MethodPost: order(UnblockHost)},
}

// listEvidence returns the state of the sealed access logs.
func listEvidence(context.Context, *engine.Engine, struct{}) (Evidence, error) {
	return Evidence{append([]sealer.Status{}, engine.SealedLogs()...)}, nil
}

// Routes implements caddy.AdminRouter.
func (API) Routes() []caddy.AdminRoute {
	list := make([]caddy.AdminRoute, 1, 1+len(routes))
	list[0] = caddy.AdminRoute{Pattern: Prefix, Handler: caddy.AdminHandlerFunc(notFound)}
	for path, methods := range routes {
		list = append(list, caddy.AdminRoute{Pattern: Prefix + path, Handler: handler(methods)})
	}
	return list
}

func notFound(http.ResponseWriter, *http.Request) error {
	paths := strings.Join(slices.Sorted(maps.Keys(routes)), ", "+Prefix)
	return fault(http.StatusNotFound, "there is nothing at this path; there is %s", Prefix+paths)
}

// handler serves one path.
func handler(methods map[string]method) caddy.AdminHandlerFunc {
	allowed := slices.Collect(maps.Keys(methods))
	if _, ok := methods[http.MethodGet]; ok {
		allowed = append(allowed, http.MethodHead)
	}
	slices.Sort(allowed)
	allow := strings.Join(allowed, ", ")
	return func(w http.ResponseWriter, r *http.Request) error {
		name := r.Method
		if name == http.MethodHead {
			name = http.MethodGet
		}
		answer, ok := methods[name]
		if !ok {
			w.Header().Set("Allow", allow)
			return fault(http.StatusMethodNotAllowed, "method %.20q: want %s", r.Method, allow)
		}
		e := engine.Current()
		if e == nil {
			return fault(http.StatusServiceUnavailable, "no gateway runs: the configuration has no robots handler")
		}
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		peer, r := withPeer(w, r)
		defer func() {
			if peer.conn != nil { // even if the answer panics
				_ = peer.conn.Close()
			}
		}()
		v, err := answer(e, r)
		switch {
		case peer.conn != nil:
			peer.send(v, err)
			return nil
		case err != nil:
			return withStatus(err)
		}
		head, body := encode(v)
		head.Set("Content-Length", strconv.Itoa(len(body)))
		maps.Copy(w.Header(), head)
		_, _ = w.Write(body) // a client that has left needs no answer
		return nil
	}
}

// encode returns the header and the body of an answer.
func encode(answer any) (http.Header, []byte) {
	head := http.Header{"Content-Type": {"application/json"}, "Cache-Control": {"no-store"}, "X-Content-Type-Options": {"nosniff"}}
	if text, ok := answer.(plainText); ok {
		head.Set("Content-Type", "text/plain; charset=utf-8")
		return head, text
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(answer) // strings, numbers and times always marshal
	return head, text.Bytes()
}

func fault(status int, format string, args ...any) error {
	return caddy.APIError{HTTPStatus: status, Err: fmt.Errorf(format, args...)}
}

func badRequest(format string, args ...any) error {
	return fault(http.StatusBadRequest, format, args...)
}

// withStatus adds the HTTP status to an error.
func withStatus(err error) caddy.APIError {
	if known, ok := errors.AsType[caddy.APIError](err); ok {
		return known
	}
	status := http.StatusInternalServerError
	_, isForbidden := errors.AsType[*robotscache.ForbiddenError](err)
	switch {
	case errors.Is(err, robotscache.ErrNotFound):
		status = http.StatusNotFound
	case isForbidden:
		status = http.StatusConflict
	case errors.Is(err, robotscache.ErrUnavailable), errors.Is(err, robotscache.ErrClosed),
		errors.Is(err, robotscache.ErrPending):
		status = http.StatusServiceUnavailable
	}
	return caddy.APIError{HTTPStatus: status, Err: err}
}

// question is a method with parameters in the query, which are the fields of Q by their JSON names:
// each at most once, no others.
func question[Q, A any](answer func(ctx context.Context, e *engine.Engine, request Q) (A, error)) method {
	var known []string
	for field := range reflect.TypeFor[Q]().Fields() {
		known = append(known, field.Tag.Get("json"))
	}
	return func(e *engine.Engine, r *http.Request) (any, error) {
		q, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			return nil, badRequest("the query cannot be read: %w", err)
		}
		var request Q
		for name, values := range q {
			i := slices.Index(known, name)
			switch {
			case i < 0:
				return nil, badRequest("unknown parameter %.50q: want %s", name, cmp.Or(strings.Join(known, ", "), "none"))
			case len(values) > 1:
				return nil, badRequest("parameter %s is given %d times", name, len(values))
			}
			if err := setField(reflect.ValueOf(&request).Elem().Field(i), values[0]); err != nil {
				return nil, err
			}
		}
		return answer(r.Context(), e, request)
	}
}

func setField(field reflect.Value, text string) error {
	switch field.Kind() {
	case reflect.Pointer:
		field.Set(reflect.ValueOf(&text))
	case reflect.Int: // only limit is a number
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > MaxPage {
			return badRequest("limit %.20q: want a number from 1 to %d", text, MaxPage)
		}
		field.SetInt(int64(n))
	default:
		field.SetString(text)
	}
	return nil
}

// maxBody bounds the body of a request, in bytes.
const maxBody = 64 << 10

// order is a method with a body: one JSON object with the fields of T, and nothing else.
func order[T, A any](answer func(ctx context.Context, e *engine.Engine, request T) (A, error)) method {
	return func(e *engine.Engine, r *http.Request) (any, error) {
		var request T
		var body bytes.Buffer
		decoder := json.NewDecoder(io.TeeReader(r.Body, &body))
		decoder.DisallowUnknownFields()
		err := decoder.Decode(&request)
		if err == nil {
			if _, more := decoder.Token(); more != io.EOF {
				err = errors.New("there is text after the JSON object")
			} else {
				err = repeated.Field(body.Bytes())
			}
		}
		switch tooLarge, isTooLarge := errors.AsType[*http.MaxBytesError](err); {
		case err == nil:
			return answer(r.Context(), e, request)
		case isTooLarge:
			return nil, badRequest("the body has more than %d bytes", tooLarge.Limit)
		case errors.Is(err, io.EOF):
			return nil, badRequest("the body is empty: want a JSON object")
		}
		return nil, badRequest("the body has the wrong form: %w", err)
	}
}

// Interface guards.
var (
	_ caddy.AdminRouter = API{}
	_ caddy.Provisioner = API{}
)
