package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/cobra"

	"github.com/crawlgate/crawlgate/adminapi"
)

// adminClient asks the admin API of a running gateway.
type adminClient struct {
	base   string
	origin string // of the same name's header field; empty over a unix socket
	http   http.Client
}

const (
	adminDialTimeout = 10 * time.Second
	// adminTimeout bounds the wait for an answer, for which robots.txt may have to be fetched.
	adminTimeout = 5 * time.Minute
	// maxAdminAnswer bounds what is read of one: a page of 1,000 origins has about a mebibyte, a
	// difference of two texts a few.
	maxAdminAnswer = 64 << 20
)

// newAdminClient takes an address as Caddy writes it (localhost:2019, unix//run/caddy.sock) or a
// URL.
func newAdminClient(address string) (*adminClient, error) {
	dialer := &net.Dialer{Timeout: adminDialTimeout}
	transport := &http.Transport{DialContext: dialer.DialContext, ResponseHeaderTimeout: adminTimeout, DisableKeepAlives: true}
	c := &adminClient{http: http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	if strings.HasPrefix(address, "http://") || strings.HasPrefix(address, "https://") {
		u, err := url.Parse(address)
		if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
			return nil, fmt.Errorf("address %q: want scheme, host and port alone, such as http://localhost:2019", address)
		}
		c.base = u.Scheme + "://" + u.Host
		c.origin = c.base
		return c, nil
	}
	n, err := caddy.ParseNetworkAddress(address)
	switch {
	case err != nil:
		return nil, fmt.Errorf("address %q: %w", address, err)
	case n.IsUnixNetwork():
		path, _, _ := strings.Cut(n.Host, "|") // permissions for the file
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
		c.base = "http://127.0.0.1" // a name that Caddy takes on every socket
		return c, nil
	case n.Network != "tcp" || n.PortRangeSize() != 1 || n.StartPort == 0:
		return nil, fmt.Errorf("address %q: want host:port or unix//path", address)
	}
	c.base = "http://" + n.JoinHostPort(0)
	c.origin = c.base
	return c, nil
}

// adminRequest is a request to the admin API, at a path below its prefix.
type adminRequest struct {
	method, path string
	query        url.Values // empty values are left out
	body         any        // sent as JSON; nil for none
}

// get is a question.
func get(path string, query url.Values) adminRequest {
	return adminRequest{method: http.MethodGet, path: path, query: query}
}

// post is an order.
func post(path string, body any) adminRequest {
	return adminRequest{method: http.MethodPost, path: path, body: body}
}

// do sends a request and returns the answer.
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
		return nil, fmt.Errorf("asking the gateway: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // it was read to the end, or is given up
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAdminAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("reading the answer of the gateway: %w", err)
	case len(data) > maxAdminAnswer:
		return nil, fmt.Errorf("the answer of the gateway has more than %d bytes", maxAdminAnswer)
	case resp.StatusCode != http.StatusOK:
		return nil, refusedBy(resp.StatusCode, data)
	}
	return data, nil
}

// adminRefusalError is what the gateway says against a request, with the status of its answer.
type adminRefusalError struct {
	status int
	text   string
}

// Error implements error.
func (r *adminRefusalError) Error() string { return r.text }

// refusedBy reads what the gateway says against a request.
func refusedBy(status int, data []byte) error {
	var fault struct {
		Error string `json:"error"`
	}
	if err := json.Unmarshal(data, &fault); err == nil && fault.Error != "" {
		return &adminRefusalError{status, fault.Error}
	}
	if status == http.StatusNotFound {
		return errors.New("there is no gateway at this address: it answers 404 for its admin API")
	}
	return fmt.Errorf("the gateway answers %d: %.200s", status, data)
}

// call sends a request and reads the answer.
func call[T any](ctx context.Context, c *adminClient, q adminRequest) (v T, err error) {
	data, err := c.do(ctx, q)
	if err != nil {
		return v, err
	}
	return v, decode(data, &v)
}

func decode(data []byte, v any) error {
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("reading the answer of the gateway: %w", err)
	}
	return nil
}

// remote are the flags of the commands that ask a running gateway.
type remote struct {
	address string
	json    bool
}

// remoteCommand is [command] with these flags.
func remoteCommand(
	c cobra.Command, run func(ctx context.Context, r remote, s streams, args []string) (int, error),
) *cobra.Command {
	var r remote
	cmd := command(c, func(ctx context.Context, s streams, args []string) (int, error) { return run(ctx, r, s, args) })
	f := cmd.Flags()
	f.StringVar(&r.address, "address", caddy.DefaultAdminListen, "admin endpoint of the gateway: host:port, unix//path or a URL")
	f.BoolVar(&r.json, "json", false, "print what the gateway answers, as JSON")
	return cmd
}

// ask sends one request and shows the answer: as it came with --json, else by show.
func ask[T any](
	ctx context.Context, r remote, s streams, q adminRequest, show func(w io.Writer, answer T) error,
) (int, error) {
	client, err := newAdminClient(r.address)
	if err != nil {
		return exitError, err
	}
	return exitOK, send(ctx, client, r, s, q, show)
}

// askEach sends a request for each argument. A failure of one does not keep the others from being
// sent.
func askEach[T any](
	ctx context.Context, r remote, s streams, args []string,
	q func(arg string) adminRequest, show func(w io.Writer, answer T) error,
) (status int, err error) {
	if len(args) == 0 {
		return exitError, errors.New("want one argument at least")
	}
	client, err := newAdminClient(r.address)
	if err != nil {
		return exitError, err
	}
	for _, arg := range args {
		if err := send(ctx, client, r, s, q(arg), show); err != nil {
			s.complain("%s: %v", arg, err)
			status = exitError
		}
	}
	return status, nil
}

func send[T any](
	ctx context.Context, client *adminClient, r remote, s streams, q adminRequest,
	show func(w io.Writer, answer T) error,
) error {
	data, err := client.do(ctx, q)
	if err != nil {
		return err
	}
	if r.json {
		return printRaw(s.out, data)
	}
	var answer T
	if err := decode(data, &answer); err != nil {
		return err
	}
	return show(s.out, answer)
}
