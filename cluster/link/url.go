package link

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// parse reads a URL: redis://, rediss:// or unix://, with the parameters of rueidis.ParseURL.
// Errors leave the URL out, because it may hold a password.
//
// Each call is made once, without client-side caching, over one connection. With several
// connections, each would have to notice by itself that the server is gone. A call that runs out
// of time must not close the connection, because others wait for their answers on it. So even a
// single call is pipelined; otherwise its deadline would be the connection's.
func parse(rawURL string) (rueidis.ClientOption, error) {
	option, err := rueidis.ParseURL(rawURL)
	if parse, ok := errors.AsType[*url.Error](err); ok {
		err = parse.Err
	}
	if err != nil {
		return rueidis.ClientOption{}, fmt.Errorf("parsing the redis URL: %w", err)
	}
	option.DisableCache, option.DisableRetry, option.PipelineMultiplex, option.AlwaysPipelining = true, true, -1, true
	option.Dialer.Timeout, option.Dialer.KeepAlive = Timeout, time.Second
	option.Sentinel.Dialer, option.ConnWriteTimeout = option.Dialer, giveUp
	if option.TLSConfig != nil && option.Sentinel.MasterSet != "" {
		option.TLSConfig.ServerName = "" // each server has its own
		option.Sentinel.TLSConfig = option.TLSConfig
	}
	option.ReadBufferEachConn, option.WriteBufferEachConn = 64<<10, 64<<10
	return option, nil
}

// CheckURL refuses a URL that [New] cannot use, before anything dials it. It accepts every text
// with Caddy placeholders, because their values are not known yet. Errors leave the URL out.
func CheckURL(raw string) error {
	if strings.Contains(raw, "{") {
		return nil
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil:
		return errors.New("redis url cannot be parsed; want one such as redis://redis.example:6379")
	case u.Scheme != "redis" && u.Scheme != "rediss" && u.Scheme != "unix":
		return fmt.Errorf("redis url has scheme %q: want redis, rediss or unix", u.Scheme)
	case u.Scheme != "unix" && u.Hostname() == "":
		return errors.New("redis url names no host")
	}
	if port, err := strconv.ParseUint(cmp.Or(u.Port(), "6379"), 10, 16); err != nil || port == 0 {
		return fmt.Errorf("redis url has port %s: want a number from 1 to 65535", u.Port())
	}
	return nil
}
