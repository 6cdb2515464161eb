package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/cluster"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/escape"
)

type adminClient struct {
	name   string // as given
	base   string
	origin string // value of the Origin header field; empty over a unix socket
	http   http.Client
}

const (
	adminDialTimeout = 10 * time.Second
	// adminTimeout bounds the wait for an answer, for which robots.txt may have to be fetched.
	adminTimeout = 5 * time.Minute
	// maxAdminAnswer bounds an answer, in bytes: a page of 1,000 origins has about a mebibyte, a
	// difference of two texts a few.
	maxAdminAnswer = 64 << 20
)

// newAdminClient accepts an address in Caddy's form (localhost:2019, unix//run/caddy.sock) or a
// URL.
func newAdminClient(address string) (*adminClient, error) {
	dialer := &net.Dialer{Timeout: adminDialTimeout}
	transport := &http.Transport{DialContext: dialer.DialContext, ResponseHeaderTimeout: adminTimeout, DisableKeepAlives: true}
	c := &adminClient{name: address, http: http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if strings.HasPrefix(address, "http://") || strings.HasPrefix(address, "https://") {
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
			return nil, fmt.Errorf("--gateway: address %q: want scheme, host and port alone, such as http://localhost:2019", address)
		}
		c.base = u.Scheme + "://" + u.Host
		c.origin = c.base
		return c, nil
	}
	n, err := caddy.ParseNetworkAddress(address)
	switch {
	case err != nil:
		return nil, fmt.Errorf("--gateway: address %q: want host:port, unix//path or a URL: %w", address, err)
	case n.IsUnixNetwork():
		path, _, _ := strings.Cut(n.Host, "|") // permissions for the file
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
		c.base = "http://127.0.0.1" // a name that Caddy takes on every socket
		return c, nil
	case n.Network != "tcp" || n.PortRangeSize() != 1 || n.StartPort == 0:
		return nil, fmt.Errorf("--gateway: address %q: want host:port, unix//path or a URL", address)
	}
	c.base = "http://" + n.JoinHostPort(0)
	c.origin = c.base
	return c, nil
}

const anEndpoint = "ask the gateway at this admin endpoint: host:port, unix//path or a URL"

// gatewayFlag adds the flag that names a gateway. It also accepts the former name --address.
func gatewayFlag(f *pflag.FlagSet, address *string, usage string) {
	f.StringVar(address, "gateway", "", usage)
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if name == "address" {
			name = "gateway"
		}
		return pflag.NormalizedName(name)
	})
}

// gatewayVariable is the environment variable that stands for --gateway.
const gatewayVariable = "CRAWLGATE_GATEWAY"

// packagedSocket is where the Caddyfile of the packages puts the admin endpoint.
var packagedSocket, packagedConfig = "/run/crawlgate/admin.sock", "/etc/crawlgate/Caddyfile"

// endpoint returns the admin endpoint to ask: the one in the flag or the environment, otherwise
// the socket of the packages, otherwise Caddy's default. It also chooses the socket if it does not
// exist but the packaged Caddyfile names it: while that gateway is down, an order must not reach
// another program.
func endpoint(flag string) string {
	if address := cmp.Or(flag, os.Getenv(gatewayVariable)); address != "" {
		return address
	}
	config, _ := os.ReadFile(packagedConfig)
	if _, err := os.Stat(packagedSocket); !errors.Is(err, fs.ErrNotExist) || bytes.Contains(config, []byte(packagedSocket)) {
		return "unix/" + packagedSocket
	}
	return caddy.DefaultAdminListen
}

// adminRequest is a request to the admin API, at a path below its prefix.
type adminRequest struct {
	method, path string
	query        url.Values // without empty values
	body         any        // sent as JSON; nil for none
}

func get(path string, query url.Values) adminRequest {
	return adminRequest{method: http.MethodGet, path: path, query: query}
}

func post(path string, body any) adminRequest {
	return adminRequest{method: http.MethodPost, path: path, body: body}
}

func (c *adminClient) do(ctx context.Context, q adminRequest) ([]byte, error) {
	var payload io.Reader = http.NoBody
	if q.body != nil {
		text, err := json.Marshal(q.body)
		if err != nil {
			return nil, fmt.Errorf("asking the gateway: %w", err)
		}
		payload = bytes.NewReader(text)
	}
	target := c.base + adminapi.Prefix + q.path
	maps.DeleteFunc(q.query, func(_ string, values []string) bool { return values[0] == "" })
	if len(q.query) > 0 {
		target += "?" + q.query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, q.method, target, payload)
	if err != nil {
		return nil, fmt.Errorf("asking the gateway: %w", err)
	}
	if q.body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.origin != "" {
		r.Header.Set("Origin", c.origin)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, c.unasked(err)
	}
	defer func() { _ = resp.Body.Close() }() // it was read to the end, or abandoned
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAdminAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the answer of the gateway: %w", err)
	case len(data) > maxAdminAnswer:
		return nil, fmt.Errorf("the answer of the gateway has more than %d bytes", maxAdminAnswer)
	case resp.StatusCode != http.StatusOK:
		return nil, refusal(resp.StatusCode, data)
	}
	return data, nil
}

// unasked says why a request got no answer, and what to do.
func (c *adminClient) unasked(err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err // without the address, which may be a made-up one
	}
	hint := ""
	switch {
	case errors.Is(err, fs.ErrPermission):
		hint = "; members of the group of that socket may ask, and root: sudo, or usermod --append --groups crawlgate USER" +
			"; if /etc/crawlgate/Caddyfile has no admin line with it: --gateway " + caddy.DefaultAdminListen
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		hint = "; if a gateway runs, name its admin endpoint by --gateway or CRAWLGATE_GATEWAY"
	}
	return fmt.Errorf("asking the gateway at %s: %w%s", c.name, err, hint)
}

// refusal reads why the gateway refuses a request.
func refusal(status int, data []byte) error {
	fault := caddy.APIError{HTTPStatus: status}
	if err := json.Unmarshal(data, &fault); err == nil && fault.Message != "" {
		return fault
	}
	if status == http.StatusNotFound {
		return errors.New("there is no gateway at this address: it answers 404 for its admin API")
	}
	return fmt.Errorf("the gateway answers %d: %.200s", status, data)
}

// isNotFound reports whether the gateway knows no such thing.
func isNotFound(err error) bool {
	fault, ok := errors.AsType[caddy.APIError](err)
	return ok && fault.HTTPStatus == http.StatusNotFound
}

func call[T any](ctx context.Context, c *adminClient, q adminRequest) (T, error) {
	return decode[T](c.do(ctx, q))
}

// decode decodes what [adminClient.do] returned.
func decode[T any](data []byte, err error) (answer T, _ error) {
	if err != nil {
		return answer, err
	}
	if err := json.Unmarshal(data, &answer); err != nil {
		return answer, fmt.Errorf("reading the answer of the gateway: %w", err)
	}
	return answer, nil
}

// remote is the environment of a command that asks a running gateway.
type remote struct {
	*adminClient
	streams
	json bool
}

// remoteCommand is [command] with the flags that name the gateway and the form of the output.
func remoteCommand(
	c cobra.Command, run func(ctx context.Context, r remote, args []string) (int, error),
) *cobra.Command {
	var address string
	var asJSON bool
	cmd := command(c, func(ctx context.Context, s streams, args []string) (int, error) {
		client, err := newAdminClient(endpoint(address))
		if err != nil {
			return exitError, err
		}
		return run(ctx, remote{client, s, asJSON}, args)
	})
	f := cmd.Flags()
	gatewayFlag(f, &address, anEndpoint)
	f.BoolVar(&asJSON, "json", false, "print what the gateway answers, as JSON")
	return cmd
}

// ask sends one request and shows the answer: unchanged with --json, else by show.
func ask[T any](ctx context.Context, r remote, q adminRequest, show func(w io.Writer, answer T)) error {
	data, err := r.do(ctx, q)
	if err == nil && r.json {
		printRaw(r.out, data)
		return nil
	}
	answer, err := decode[T](data, err)
	if err == nil {
		show(r.out, answer)
	}
	return err
}

// acknowledged is an answer to an order that goes to all gateways of a fleet.
type acknowledged interface {
	Acks() cluster.Acknowledgements
}

// order sends one order and shows the answer, with the answers of the other gateways.
func order[T acknowledged](ctx context.Context, r remote, q adminRequest, show func(w io.Writer, answer T)) (status int, err error) {
	data, err := r.do(ctx, q)
	answer, err := decode[T](data, err)
	if err != nil {
		return exitError, err
	}
	report := answer.Acks()
	answered, all, ended := report.Counts()
	missed := answered < all || report.Pending || report.NotDelivered
	doubtful, ok := any(answer).(interface{ Undone() bool })
	if missed || ok && doubtful.Undone() {
		status = exitNo
	}
	if r.json {
		printRaw(r.out, data)
		return status, nil
	}
	line := fmt.Sprintf("%d of %d gateways", answered, all)
	if given, isOrder := any(answer).(adminapi.OrderGiven); isOrder && given.Order.Scope != enforce.StopAllow {
		line += fmt.Sprintf(", %d requests ended", ended)
	}
	if report.Pending || report.NotDelivered {
		line += ": redis does not answer"
	}
	if missed {
		printLine(r.out, line) // first, because the user must act on it
	}
	show(r.out, answer)
	if !missed && len(report.Gateways) > 0 {
		printLine(r.out, line)
	}
	complainOf(r, report, all)
	return status, nil
}

// complainOf says which gateways an order has not reached.
func complainOf(r remote, report cluster.Acknowledgements, all int) {
	for _, g := range report.Gateways {
		if g.AppliedAt.IsZero() {
			r.complain("%s is silent; its last heartbeat was at %s", escape.Unprintable(g.Name), cmp.Or(moment(g.LastHeartbeat), "a time that is not known"))
		}
	}
	if report.Unlisted > 0 {
		r.complain("it is not known whether %d more gateways have answered", report.Unlisted)
	}
	if n := all - len(report.Gateways) - report.Unlisted; n > 0 {
		r.complain("%d of the gateways that the configuration expects are not known", n)
	}
	switch {
	case report.Pending:
		r.complain("redis does not answer: the other gateways get the order when it is back")
	case report.NotDelivered:
		r.complain("redis does not answer: the other gateways do not know; give the command again when it is back")
	}
}

// orderEach sends an order for each argument. It continues after a failure.
func orderEach[T acknowledged](
	ctx context.Context, r remote, args []string,
	q func(arg string) adminRequest, show func(w io.Writer, answer T),
) (status int, err error) {
	if len(args) == 0 {
		return exitError, misused("want at least one argument")
	}
	for _, arg := range args {
		one, err := order(ctx, r, q(arg), show)
		if err != nil {
			r.complain("%s: %v", arg, err)
			one = errorStatus(err)
		}
		status = max(status, one)
	}
	return status, nil
}
