package crawlgate

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/origin"
)

// selfAnswer is what the gateway answers for itself.
type selfAnswer struct {
	status      int
	contentType string
	body        []byte
}

const plainText = "text/plain; charset=utf-8"

// serveSelf answers a request that is not proxied but for the gateway itself: a page that says what it is and how
// clients are set up, its certificate, a PAC file, its health. Nothing here is secret, so nobody is asked who they are.
func (h *Handler) serveSelf(w http.ResponseWriter, r *http.Request) error {
	a := h.selfAnswer(r)
	header := w.Header()
	header.Set("Content-Type", a.contentType)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Security-Policy", "default-src 'none'; img-src data:; style-src 'unsafe-inline'")
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Length", strconv.Itoa(len(a.body)))
	w.WriteHeader(a.status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(a.body) // a client that has left needs no answer
	}
	return nil
}

func (h *Handler) selfAnswer(r *http.Request) selfAnswer {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return selfAnswer{
			http.StatusMethodNotAllowed, plainText,
			[]byte("This is Crawlgate, a forward proxy. Send it absolute URLs or CONNECT.\n"),
		}
	}
	root := h.rootCertificate()
	switch path := r.URL.Path; {
	case path == "/":
		return h.selfPage(r, root)
	case path == "/health":
		return h.health()
	case path == "/proxy.pac":
		return pacFile(r)
	case path == "/ca.crt" && root != nil:
		return selfAnswer{http.StatusOK, "application/x-pem-file", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw})}
	case path == "/ca.der" && root != nil:
		return selfAnswer{http.StatusOK, "application/pkix-cert", root.Raw}
	}
	return selfAnswer{http.StatusNotFound, plainText, []byte("This is Crawlgate, a forward proxy. There is nothing at this path.\n")}
}

// rootCertificate is what clients have to trust for https, nil if nothing is intercepted.
func (h *Handler) rootCertificate() *x509.Certificate {
	if h.authority == nil {
		return nil
	}
	return h.authority.RootCertificate()
}

// health says whether the gateway can do its work. A store that fails for a while is no reason to take it out of
// service: it goes on from memory, and store_up in the metrics tells.
func (h *Handler) health() selfAnswer {
	if err := h.site.Engine.Open(); err != nil {
		return selfAnswer{http.StatusServiceUnavailable, plainText, []byte("the store cannot be opened\n")}
	}
	return selfAnswer{http.StatusOK, plainText, []byte("ok\n")}
}

// ownAddress is the address by which the client reaches the gateway: what it wrote into Host, if that is an address at
// all, else where the connection came in.
func ownAddress(r *http.Request) string {
	if o, err := origin.FromAuthority("http", r.Host); err == nil {
		return o.HostPort()
	}
	if addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		return addr.String()
	}
	return "GATEWAY:PORT"
}

// proxyScheme is how a client speaks to the gateway.
func proxyScheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	return "http"
}

// pacFile sends a browser's requests for everything but this machine through the gateway.
func pacFile(r *http.Request) selfAnswer {
	kind := strings.ToUpper(proxyScheme(r))
	if kind == "HTTP" {
		kind = "PROXY"
	}
	body := fmt.Sprintf("function FindProxyForURL(url, host) {\n  return %q;\n}\n", kind+" "+ownAddress(r))
	return selfAnswer{http.StatusOK, "application/x-ns-proxy-autoconfig", []byte(body)}
}

// selfPage is the page at /, as HTML for browsers and as text for everyone else.
func (h *Handler) selfPage(r *http.Request, root *x509.Certificate) selfAnswer {
	data := map[string]any{"Proxy": proxyScheme(r) + "://" + ownAddress(r), "Address": ownAddress(r)}
	if root != nil {
		sum := sha256.Sum256(root.Raw)
		data["Fingerprint"] = strings.ToUpper(hex.EncodeToString(sum[:]))
		data["Subject"] = root.Subject.CommonName
		data["Until"] = root.NotAfter.UTC().Format("2006-01-02")
	}
	var b bytes.Buffer
	if enforce.Negotiate(strings.Join(r.Header["Accept"], ",")) != enforce.FormHTML {
		if err := selfText.Execute(&b, data); err != nil {
			return selfAnswer{http.StatusInternalServerError, plainText, []byte("the page cannot be made\n")}
		}
		return selfAnswer{http.StatusOK, plainText, b.Bytes()}
	}
	if err := selfHTML.Execute(&b, data); err != nil {
		return selfAnswer{http.StatusInternalServerError, plainText, []byte("the page cannot be made\n")}
	}
	return selfAnswer{http.StatusOK, "text/html; charset=utf-8", b.Bytes()}
}
