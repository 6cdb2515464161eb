// Command colly crawls a site with the colly framework, through a proxy.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/gocolly/colly/v2"
)

type page struct {
	URL    string `json:"url"`
	Status int    `json:"status"`
	Body   string `json:"body"`
	Error  string `json:"error,omitempty"`
}

func main() {
	if len(os.Args) != 5 {
		fmt.Fprintln(os.Stderr, "usage: colly PROXY CA HTTP-VERSION ROOT")
		os.Exit(2)
	}
	if err := crawl(os.Args[1], os.Args[2], os.Args[3] == "2", os.Args[4]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func crawl(proxy, ca string, http2 bool, root string) error {
	proxyURL, err := url.Parse(proxy)
	if err != nil {
		return err
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return fmt.Errorf("%s: no certificate", ca)
	}
	c := colly.NewCollector(colly.IgnoreRobotsTxt(), colly.ParseHTTPErrorResponse())
	c.WithTransport(&http.Transport{
		Proxy:             http.ProxyURL(proxyURL),
		TLSClientConfig:   &tls.Config{RootCAs: roots},
		ForceAttemptHTTP2: http2,
		IdleConnTimeout:   10 * time.Second,
	})
	out := json.NewEncoder(os.Stdout)
	c.OnHTML("a[href]", func(e *colly.HTMLElement) {
		_ = e.Request.Visit(e.Attr("href")) // an error here means that the page was visited before
	})
	c.OnScraped(func(r *colly.Response) {
		_ = out.Encode(page{URL: r.Request.URL.String(), Status: r.StatusCode, Body: string(r.Body)})
	})
	c.OnError(func(r *colly.Response, err error) {
		_ = out.Encode(page{URL: r.Request.URL.String(), Status: r.StatusCode, Error: err.Error()})
	})
	return c.Visit(root)
}
