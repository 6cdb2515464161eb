package adminapi

import (
	"context"
	"fmt"
	"net"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// firstEndpoint lets only the first admin endpoint of this process be checked. The endpoint of a
// reload takes over the socket of the one before.
var firstEndpoint sync.Once

// endpointWait is how long a socket of another process may take to close, as after a restart.
const endpointWait = 2 * time.Second

// checkEndpoint fails if another process listens at the unix socket at which Caddy is about to open
// the admin endpoint of ctx. Caddy would remove the socket of that process, which could then take
// neither orders nor a reload. [engine.Engine.AddSite] checks addresses with a port.
func checkEndpoint(ctx caddy.Context) (err error) {
	firstEndpoint.Do(func() {
		addr, parseErr := caddy.ParseNetworkAddress(caddy.NewReplacer().ReplaceKnown(endpointOf(ctx), ""))
		if parseErr != nil || !addr.IsUnixNetwork() { // Caddy reports the error
			return
		}
		path, _, _ := strings.Cut(addr.Host, "|") // what follows is the mode
		err = waitUnused(ctx, path, endpointWait)
	})
	return err
}

// endpointOf returns the address of the admin endpoint, or "" if it is not known. Caddy keeps it in
// fields that it does not export.
func endpointOf(ctx caddy.Context) string {
	v := reflect.ValueOf(ctx)
	for _, name := range []string{"cfg", "Admin", "Listen"} {
		if v = reflect.Indirect(v); v.Kind() != reflect.Struct {
			return ""
		}
		v = v.FieldByName(name)
	}
	if v.Kind() != reflect.String {
		return ""
	}
	if v.String() == "" {
		return caddy.DefaultAdminListen
	}
	return v.String()
}

// waitUnused waits until nobody listens at a unix socket, and fails if that takes longer than most.
// A socket that a killed process left behind is unused.
func waitUnused(ctx context.Context, path string, most time.Duration) error {
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if err != nil {
			return nil //nolint:nilerr // nobody listens
		}
		_ = conn.Close()
		if time.Since(began) >= most {
			return fmt.Errorf("admin endpoint unix/%s: another process listens there already (waited %v); stop it, or choose another address", path, most)
		}
	}
}
