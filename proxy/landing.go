package proxy

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	_ "embed" // for the page
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"html/template"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	texttemplate "text/template"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/docsite"
	"github.com/crawlgate/crawlgate/internal/pagestyle"
	"github.com/crawlgate/crawlgate/internal/version"
	"github.com/crawlgate/crawlgate/origin"
)

// The page at /, as HTML for browsers and as text for all others. clients.tmpl says how to
// configure common clients with the gateway and its certificate. The data are the proxy's URL
// (.Proxy), its .Address (.Host and .Port) and, if TLS is intercepted, .Fingerprint, .Subject and
// .Until of the certificate. check.sh tests whether a client is configured.
var (
	//go:embed check.sh
	checkScript string

	//go:embed clients.tmpl
	clients string
	//go:embed landing.txt
	landingText string
	//go:embed landing.html
	landingHTML string
	//go:embed copy.js
	copyScript string

	textPage = texttemplate.Must(texttemplate.New("text").Parse(clients + landingText))
	htmlPage = template.Must(template.New("html").Parse(
		`{{define "head"}}` + pagestyle.Head + `{{end}}{{define "brand"}}` + pagestyle.Brand + `{{end}}{{define "copy"}}<script>` + copyScript + `</script>{{end}}` + landingHTML))
	pagePolicy = pagestyle.Policy + "; script-src " + pagestyle.Source(copyScript)
)

// landing answers requests for the gateway itself.
type landing struct {
	status      int
	contentType string
	body        []byte
}

const plainText = "text/plain; charset=utf-8"

// serveLanding answers a request for the gateway itself with its page, its certificate, a PAC file,
// its health or the documentation. The page says how to set up clients. Nothing here is secret, so
// clients need credentials only to ask for their own name.
func (x *exchange) serveLanding() error {
	r := x.r
	switch path := r.URL.Path; {
	case r.URL.IsAbs() && (path == "/agent" || path == "/refused"):
		return x.serveSender()
	case docsite.Covers(path):
		docsite.Serve(x.w, r, wantsHTML(r))
		return nil
	}
	return x.serveOwn(x.site.landing(r))
}

// serveSender tells a client which agent the gateway sees in it, or refuses it as it would
// elsewhere. It always refuses /refused, so that a client sees what a refusal looks like.
func (x *exchange) serveSender() error {
	target, err := origin.NewTarget(x.r.URL)
	if err != nil {
		return x.fail(enforce.ReasonBadTarget, err.Error())
	}
	x.identify()
	var refused bool
	switch x.decision, refused = x.site.Enforcer.Screen(x.identity, target.Origin); {
	case refused:
		return x.refuse()
	case target.Path == "/refused":
		return x.fail(enforce.ReasonOperatorDeny, "this page is always refused, so that you can test clients")
	}
	body := "agent: " + x.decision.Agent + "\nby: " + x.decision.IdentifiedBy + "\n"
	return x.serveOwn(landing{http.StatusOK, plainText, []byte(body)})
}

func (x *exchange) serveOwn(a landing) error {
	header := x.w.Header()
	header.Set("Content-Type", a.contentType)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", pagePolicy)
	header.Set("Cache-Control", "no-store")
	answer(x.w, x.r, a.status, a.body)
	return nil
}

// answer sends a complete body or, for HEAD, only its length. The header has been set.
func answer(w http.ResponseWriter, r *http.Request, status int, body []byte) {
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body) // a client that has left needs no answer
	}
}

func (s *Site) landing(r *http.Request) landing {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return landing{
			http.StatusMethodNotAllowed, plainText,
			[]byte("This is Crawlgate, a forward proxy. Send it absolute URLs or CONNECT.\n"),
		}
	}
	var root *x509.Certificate // the root that clients have to trust for https
	if s.authority != nil {
		root = s.authority.Root()
	}
	switch path := r.URL.Path; {
	case path == "/ca.crt" && root != nil:
		return landing{http.StatusOK, "application/x-pem-file", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw})}
	case r.URL.IsAbs(): // the answers below contain the address by which the client reaches the gateway
	case path == "/ca.der" && root != nil:
		return landing{http.StatusOK, "application/pkix-cert", root.Raw}
	case path == "/":
		return landingPage(r, root)
	case path == "/health":
		return s.health(r)
	case path == "/proxy.pac":
		return pacFile(r)
	case path == "/check.sh":
		return landing{http.StatusOK, plainText, []byte(strings.ReplaceAll(checkScript, "http://GATEWAY:3128", ownURL(r)))}
	}
	return landing{http.StatusNotFound, plainText, []byte("This is Crawlgate, a forward proxy. There is nothing at this path.\n")}
}

// health says in its first line whether the gateway can do its work, and then its version. A store
// that fails for a while is no reason to take the gateway out of service: it continues from memory,
// and the metric store_up shows the failure. Caddy's shutdown_delay gives a load balancer time to
// switch to another gateway.
func (s *Site) health(r *http.Request) landing {
	if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		if leaving, _ := repl.Get("http.shutting_down"); leaving == true {
			return landing{http.StatusServiceUnavailable, plainText, []byte("the gateway is about to stop\n")}
		}
	}
	if err := s.Engine.Open(); err != nil {
		return landing{http.StatusServiceUnavailable, plainText, []byte("the store cannot be opened\n")}
	}
	return landing{http.StatusOK, plainText, []byte("ok\ncrawlgate " + version.Read() + "\n")}
}

// ownAddress returns the address by which the client reaches the gateway: the Host field if it is
// an address, otherwise the local address of the connection.
func ownAddress(r *http.Request) string {
	if o, err := origin.FromAuthority("http", r.Host); err == nil {
		return o.HostPort()
	}
	if addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		return addr.String()
	}
	return "GATEWAY:PORT"
}

// localAddress returns the gateway's end of a request's connection. It is invalid for a unix
// socket.
func localAddress(r *http.Request) netip.AddrPort {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return netip.AddrPort{}
	}
	local, _ := netip.ParseAddrPort(addr.String()) // a listener wrapper may use its own type
	return netip.AddrPortFrom(local.Addr().Unmap(), local.Port())
}

// asOwn gives a request for the documentation at the address of its connection, which a browser
// sends in absolute form if the gateway is its proxy, the form of other requests for the gateway
// itself. It is changed before it is logged: a line with an absolute URL has a decision.
func asOwn(r *http.Request) {
	if r.URL.Scheme != "http" || r.URL.User != nil {
		return
	}
	o, err := origin.FromAuthority("http", r.URL.Host)
	if addr, ok := o.Addr(); err == nil && ok && netip.AddrPortFrom(addr, o.Port) == localAddress(r) {
		u := *r.URL
		u.Scheme, u.Host = "", ""
		r.URL, r.RequestURI = &u, u.RequestURI()
	}
}

// docsURL returns the URL of the documentation for the client of a request. It has the local
// address of the client's connection to the gateway; for a request in a tunnel, this is the
// connection of the tunnel. A listener on all addresses still has a concrete one for each
// connection, and the PROXY protocol gives the one that the client connected to. Behind NAT, the
// client may not reach this address, but a request does not contain the name by which the client
// knows the gateway: its Host is the site. With TLS, the server name is that name. For a unix
// socket, and for a link-local address, whose zone means nothing to the client, the URL has the
// name that works through the proxy.
func docsURL(r *http.Request) string {
	for outer := egress.ConnectFrom(r.Context()); outer != nil; outer = egress.ConnectFrom(r.Context()) {
		r = outer.Outer
	}
	local := localAddress(r)
	if !local.IsValid() || local.Addr().Zone() != "" {
		return "http://" + enforce.OwnHost + docsite.Root
	}
	host := local.String()
	if r.TLS != nil {
		if o, err := origin.FromAuthority("http", net.JoinHostPort(r.TLS.ServerName, strconv.Itoa(int(local.Port())))); err == nil {
			host = o.HostPort()
		}
	}
	return proxyScheme(r) + "://" + host + docsite.Root
}

// proxyScheme is how a client speaks to the gateway.
func proxyScheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// ownURL is the gateway as a client names it as its proxy.
func ownURL(r *http.Request) string { return proxyScheme(r) + "://" + ownAddress(r) }

// pacFile sends a browser's requests for everything but this machine through the gateway.
func pacFile(r *http.Request) landing {
	kind := strings.ToUpper(proxyScheme(r))
	if kind == "HTTP" {
		kind = "PROXY"
	}
	body := fmt.Sprintf("function FindProxyForURL(url, host) {\n  return %q;\n}\n", kind+" "+ownAddress(r))
	return landing{http.StatusOK, "application/x-ns-proxy-autoconfig", []byte(body)}
}

// landingPage returns the page at /. root is nil if nothing is intercepted.
func landingPage(r *http.Request, root *x509.Certificate) landing {
	host, port, _ := net.SplitHostPort(ownAddress(r))
	data := map[string]any{"Proxy": ownURL(r), "Address": ownAddress(r), "Host": host, "Port": port}
	if root != nil {
		sum := sha256.Sum256(root.Raw)
		data["Fingerprint"] = strings.ToUpper(hex.EncodeToString(sum[:]))
		data["Subject"] = root.Subject.CommonName
		data["Until"] = root.NotAfter.UTC().Format("2006-01-02")
	}
	var page interface {
		Execute(w io.Writer, data any) error
	} = textPage
	var b bytes.Buffer
	contentType := plainText
	if wantsHTML(r) {
		page, contentType = htmlPage, "text/html; charset=utf-8"
		_ = textPage.ExecuteTemplate(&b, "clients", data)
		data["Clients"] = sections(b.String())
		b.Reset()
	}
	_ = page.Execute(&b, data) // the data has everything that the templates need, and writing to a Buffer cannot fail
	return landing{http.StatusOK, contentType, b.Bytes()}
}

func wantsHTML(r *http.Request) bool {
	return enforce.Negotiate(strings.Join(r.Header["Accept"], ",")) == enforce.FormHTML
}

// sections splits the text about clients. Each section has the name of a client, a description (a
// paragraph with "# "), a link, and the commands to type.
func sections(text string) (all [][]string) {
	for s := range strings.SplitSeq(strings.ReplaceAll(text, "\n#   ", " "), "\n## ") {
		all = append(all, strings.Split(strings.TrimPrefix(strings.TrimSpace(s), "## "), "\n\n"))
	}
	return all
}

// serveRobotsTxt answers a crawler's own request for robots.txt from the record, so that what the
// crawler reads is what the gateway obeys, and the site is asked once for all of them. If the
// site's record is unreachable, the answer is 503. Every robots.txt client understands this as
// "nothing may be crawled", which is what the gateway enforces.
func (x *exchange) serveRobotsTxt() error {
	ctx := x.ctx
	entry, source, now, err := x.site.Enforcer.Lookup(ctx, x.target.Origin, x.identity)
	if err != nil {
		return x.fail(enforce.LookupFailure(ctx, err))
	}
	view := entry.View(now)
	x.decision.NoteView(view, source, now)

	header := x.w.Header()
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Status", enforce.Name+"; hit; ttl="+wholeSeconds(max(view.FreshUntil.Sub(now), 0)))
	header.Set("Age", wholeSeconds(x.decision.Age))
	var body []byte
	status := view.Access.RobotsStatus()
	switch status {
	case http.StatusOK:
		body = view.Body
	case http.StatusNotFound:
		body = []byte("The site has no robots.txt.\n")
	default:
		x.decision.Detail = view.Why()
		body = []byte("The site's robots.txt is unreachable: " + view.Cause.Tell(view.Why()) + "\n")
		header.Set("Retry-After", strconv.FormatInt(enforce.RetrySeconds(max(view.NextAttempt.Sub(now), enforce.ReasonPending.RetryAfter())), 10))
	}
	answer(x.w, x.r, status, body)
	return nil
}

// wholeSeconds formats a duration for header fields.
func wholeSeconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }
