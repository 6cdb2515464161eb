//go:build slow

package egress

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
)

// Users of the machines in these tests. They need no names.
const (
	crawlerUser   = 61001
	gatewayUser   = 61002
	otherUser     = 61003
	inheritedUser = 100123 // one of a crawler's user IDs in /etc/subuid
)

// wayOut is a network with a crawler, a gateway, a site, and a path from the crawler to the site
// that bypasses the gateway.
type wayOut struct {
	t                         *testing.T
	crawler, gateway, routing *netns // routing has the rules
	site                      *realSite
	users                     bool   // the crawler is a user of the machine with the rules
	proxy4, proxy6            string // addresses of the gateway for the crawler
	asks                      int    // the link whose first end is the gateway's address for the site, if it is not the crawlers' machine
	beside                    *listeners
	dir                       string
	stopGateway               func()
}

// The gateway runs on the crawlers' machine, as a separate user.
func wayOutOfUser(t *testing.T) *wayOut {
	t.Helper()
	w := &wayOut{t: t, crawler: newNetns(t), users: true, proxy4: "127.0.0.1", proxy6: "::1", asks: 9}
	w.gateway, w.routing = w.crawler, w.crawler
	site := newNetns(t)
	link(1, w.crawler, "out", site, "in")
	w.crawler.route(1, 2)
	site.route(1, 1)
	return w.build(site)
}

// The gateway runs on another machine. The crawlers' machine has its own path to the site.
func wayOutToRemote(t *testing.T) *wayOut {
	t.Helper()
	w := &wayOut{t: t, crawler: newNetns(t), gateway: newNetns(t), users: true, proxy4: linkAddr4(2, 2), proxy6: linkAddr6(2, 2), asks: 3}
	w.routing = w.crawler
	site := newNetns(t)
	link(1, w.crawler, "out", site, "in")
	link(2, w.crawler, "gate", w.gateway, "crawlers")
	link(3, w.gateway, "out", site, "gate")
	w.crawler.route(1, 2)
	w.gateway.route(3, 2)
	return w.build(site)
}

// The crawlers' network and the gateway are behind a router, which has the rules.
func wayOutByRouter(t *testing.T) *wayOut {
	t.Helper()
	w := &wayOut{t: t, crawler: newNetns(t), gateway: newNetns(t), routing: newNetns(t), proxy4: linkAddr4(2, 1), proxy6: linkAddr6(2, 1), asks: 2}
	w.routing.forwards()
	site := newNetns(t)
	link(1, w.crawler, "out", w.routing, "br-crawlers")
	link(2, w.gateway, "out", w.routing, "gate")
	link(3, w.routing, "out", site, "in")
	w.crawler.route(1, 2)
	w.gateway.route(2, 2)
	w.routing.route(3, 2)
	site.route(3, 1)
	return w.build(site)
}

// The crawler is a container at a bridge of the gateway's machine.
func wayOutByBridge(t *testing.T) *wayOut {
	t.Helper()
	w := &wayOut{t: t, crawler: newNetns(t), gateway: newNetns(t), proxy4: linkAddr4(1, 2), proxy6: linkAddr6(1, 2), asks: 2}
	w.routing = w.gateway
	w.routing.forwards()
	site := newNetns(t)
	w.routing.sh("ip link add name br-crawlers type bridge; echo 0 >/proc/sys/net/ipv6/conf/br-crawlers/accept_dad")
	w.routing.addr(1, 2, "br-crawlers")
	w.crawler.sh(fmt.Sprintf("ip link add name out type veth peer name crawler netns /proc/%d/fd/%d", os.Getpid(), w.routing.fd))
	w.routing.sh("ip link set dev crawler master br-crawlers up")
	w.crawler.addr(1, 1, "out")
	link(2, w.routing, "out", site, "in")
	w.crawler.route(1, 2)
	w.routing.route(2, 2)
	site.route(2, 1)
	return w.build(site)
}

// The crawler and the gateway are containers at one bridge. As with Docker, traffic over the bridge
// passes the rules too.
func wayOutAtOneBridge(t *testing.T) *wayOut {
	t.Helper()
	w := &wayOut{t: t, crawler: newNetns(t), gateway: newNetns(t), routing: newNetns(t), proxy4: linkAddr4(1, 3), proxy6: linkAddr6(1, 3), asks: 2}
	w.routing.forwards()
	site := newNetns(t)
	w.routing.sh(`modprobe br_netfilter 2>/dev/null || : it may be part of the kernel
		ip link add name br-crawlers type bridge; echo 0 >/proc/sys/net/ipv6/conf/br-crawlers/accept_dad
		for family in ip ip6; do echo 1 >/proc/sys/net/bridge/bridge-nf-call-${family}tables; done`)
	w.routing.addr(1, 2, "br-crawlers")
	for j, n := range map[int]*netns{1: w.crawler, 3: w.gateway} {
		end := fmt.Sprint("container", j)
		n.sh(fmt.Sprintf("ip link add name crawlers type veth peer name %s netns /proc/%d/fd/%d", end, os.Getpid(), w.routing.fd))
		w.routing.sh("ip link set dev " + end + " master br-crawlers up")
		n.addr(1, j, "crawlers")
	}
	link(2, w.gateway, "out", site, "gate")
	link(3, w.routing, "out", site, "in")
	w.crawler.route(1, 2)
	w.gateway.route(2, 2)
	w.routing.route(3, 2)
	site.route(3, 1)
	return w.build(site)
}

// build starts everything that listens, and the gateway.
func (w *wayOut) build(site *netns) *wayOut {
	w.t.Helper()
	w.dir = rig.TempDir(w.t)
	w.site = startRealSite(w.t, site, w.dir)
	// Do not count packets of the gateway, and those by which machines find each other's address.
	site.sh(fmt.Sprintf(`nft 'table inet seen { counter arrived {}
		chain arrive { type filter hook prerouting priority raw; policy accept;
			iif lo return
			icmpv6 type { nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert, mld-listener-query, mld-listener-report, mld2-listener-report } return
			ip saddr %s return
			ip6 saddr %s return
			counter name arrived
		}
	}'`, linkAddr4(w.asks, 1), linkAddr6(w.asks, 1)))
	for _, n := range []*netns{w.crawler, w.gateway} {
		n.sh("echo 0 2147483647 >/proc/sys/net/ipv4/ping_group_range") // every user may use ping's sockets
	}
	w.beside = w.gateway.listen(0, []int{8888}, []int{53, 3128}, w.proxy4, w.proxy6)
	w.startGateway()
	return w
}

// startGateway runs the binary as a separate user, as the package does.
func (w *wayOut) startGateway() {
	w.t.Helper()
	// Other users cannot enter the binary's folder. A copy may be busy when it is to run, so prefer
	// a link.
	w.gateway.sh(fmt.Sprintf("ln %s %s/crawlgate 2>/dev/null || cp %[1]s %[2]s/crawlgate; chmod 755 %[2]s", rig.Binary, w.dir))
	state := filepath.Join(w.dir, "state")
	config := fmt.Sprintf(`{
	admin localhost:2019
	persist_config off
	robots {
		egress {
			allow_private %s/32 %s/128
			trust_ca %s
		}
	}
}

:3128 {
	log {
		output file %s/access.log
	}
	robots {
		clients 127.0.0.1 ::1 198.51.100.0/24 2001:db8::/32
	}
}
`, siteAddr4, siteAddr6, w.site.caFile, state)
	for _, err := range []error{
		os.WriteFile(filepath.Join(w.dir, "Caddyfile"), []byte(config), 0o644),
		os.Mkdir(state, 0o700), os.Chown(state, gatewayUser, gatewayUser),
	} {
		if err != nil {
			w.t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(w.t.Context()))
	said, ended := new(rig.Tail), make(chan struct{})
	go func() {
		defer close(ended)
		err := w.gateway.command(ctx, gatewayUser, []string{"XDG_DATA_HOME=" + state, "XDG_CONFIG_HOME=" + state, "HOME=" + state}, said,
			filepath.Join(w.dir, "crawlgate"), "run", "--config", filepath.Join(w.dir, "Caddyfile"), "--adapter", "caddyfile")
		fmt.Fprintln(said, "ended:", err)
	}()
	w.stopGateway = func() {
		stop()
		<-ended
	}
	w.t.Cleanup(func() {
		w.stopGateway()
		if w.t.Failed() {
			w.t.Log(said)
		}
	})
	rig.Eventually(w.t, "the gateway to be ready", func() bool {
		return w.gateway.command(w.t.Context(), 0, nil, new(rig.Tail), "curl", "-sf", "-o", "/dev/null", "http://127.0.0.1:3128/health") == nil
	})
}
