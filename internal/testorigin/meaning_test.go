package testorigin_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestRFC9309_2_3_1_MeaningOfEachBehaviour reads every behaviour with a short crawler that uses
// net/http and RFC 9309 section 2.3.1 and nothing of testorigin, in memory and with a virtual
// clock.
func TestRFC9309_2_3_1_MeaningOfEachBehaviour(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"http", "https"} {
		for _, behaviour := range testorigin.Catalogue(scheme, rules) {
			t.Run(scheme+" "+behaviour.Name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					server := testorigin.Start(t, testorigin.Config{InMemory: true})
					checkMeaning(t, server, scheme, behaviour)
				})
			})
		}
	}
}

// TestBehavioursOverSockets does the same over TCP, without the behaviours that need a timeout of
// the client.
func TestBehavioursOverSockets(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	for _, scheme := range []string{"http", "https"} {
		for _, behaviour := range testorigin.Catalogue(scheme, rules) {
			if strings.HasPrefix(behaviour.Name, "hang") || behaviour.Name == "drip-feed" {
				continue
			}
			t.Run(scheme+" "+behaviour.Name, func(t *testing.T) {
				t.Parallel()
				checkMeaning(t, server, scheme, behaviour)
			})
		}
	}
}

func TestCatalogueNamesAreDistinct(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	meanings := make(map[testorigin.Meaning]int)
	for _, b := range testorigin.Catalogue("https", rules) {
		if seen[b.Name] {
			t.Errorf("two behaviours have the name %q", b.Name)
		}
		seen[b.Name] = true
		meanings[b.Meaning]++
	}
	for m := testorigin.MeansUnreachable; m <= testorigin.MeansAbsent; m++ {
		if meanings[m] < 5 {
			t.Errorf("only %d behaviours mean %v, want at least 5", meanings[m], m)
		}
	}
	for _, b := range testorigin.Catalogue("http", rules) {
		if b.NeedsTLS() {
			t.Errorf("%q works only with https sites", b.Name)
		}
	}
}

func checkMeaning(t *testing.T, server *testorigin.Server, scheme string, behaviour testorigin.Behaviour) {
	t.Helper()
	site := server.Site(t, testorigin.SiteConfig{Scheme: scheme})
	version := site.SetRobots(behaviour)
	transport := newTransport(t, server)
	defer transport.CloseIdleConnections()

	meaning, got, err := crawl(t.Context(), transport, site.URL("/robots.txt"))
	if meaning != behaviour.Meaning {
		t.Errorf("a crawler takes it for %v (%v), want %v", meaning, err, behaviour.Meaning)
	}
	if meaning == testorigin.MeansRules && !bytes.HasPrefix(got, behaviour.Rules) {
		t.Errorf("a crawler has the rules %.100q, want %.100q", got, behaviour.Rules)
	}
	for _, e := range site.RobotsExchanges() {
		if e.Behaviour != behaviour.Name || e.Version != version {
			t.Errorf("recorded as %q, version %d, want %q, version %d", e.Behaviour, e.Version, behaviour.Name, version)
		}
	}
}

const (
	patience   = 20 * time.Second
	maxHops    = 5
	maxDecoded = 1 << 20
)

// errAbsent is a redirect that leads nowhere (RFC 9309 section 2.3.1.2).
var errAbsent = errors.New("no usable redirect")

// crawl returns the reference crawler.
func crawl(ctx context.Context, transport http.RoundTripper, robotsURL string) (testorigin.Meaning, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	resp, err := follow(ctx, transport, robotsURL)
	if errors.Is(err, errAbsent) {
		return testorigin.MeansAbsent, nil, err
	}
	if err != nil {
		return testorigin.MeansUnreachable, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case resp.StatusCode/100 == 2:
		body, err := decode(resp)
		if err != nil {
			return testorigin.MeansUnreachable, nil, err
		}
		return testorigin.MeansRules, body, nil
	case resp.StatusCode/100 == 4 && resp.StatusCode != 407 && resp.StatusCode != 429 && resp.StatusCode != 430, resp.StatusCode/100 == 3:
		return testorigin.MeansAbsent, nil, nil
	default:
		return testorigin.MeansUnreachable, nil, fmt.Errorf("status %d", resp.StatusCode)
	}
}

// follow returns the first response that is not a redirect, or has no Location.
func follow(ctx context.Context, transport http.RoundTripper, at string) (*http.Response, error) {
	for range maxHops + 1 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
		if err != nil {
			return nil, err
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		location := resp.Header.Get("Location")
		if resp.StatusCode/100 != 3 || location == "" {
			return resp, nil
		}
		_ = resp.Body.Close()
		next, err := req.URL.Parse(location)
		switch {
		case err != nil:
			return nil, err
		case next.Scheme != "http" && next.Scheme != "https":
			return nil, errAbsent
		case next.Host == "":
			return nil, errors.New("redirect without a host")
		}
		at = next.String()
	}
	return nil, errAbsent
}

func decode(resp *http.Response) ([]byte, error) {
	coded, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	var plain io.Reader
	switch coding := resp.Header.Get("Content-Encoding"); coding {
	case "":
		return coded, nil
	case "gzip":
		plain, err = gzip.NewReader(bytes.NewReader(coded))
	case "deflate":
		if plain, err = zlib.NewReader(bytes.NewReader(coded)); err != nil {
			plain, err = flate.NewReader(bytes.NewReader(coded)), nil
		}
	case "br":
		plain = brotli.NewReader(bytes.NewReader(coded))
	case "zstd":
		var decoder *zstd.Decoder
		if decoder, err = zstd.NewReader(bytes.NewReader(coded), zstd.WithDecoderConcurrency(1)); err == nil {
			defer decoder.Close()
			plain = decoder
		}
	default:
		err = fmt.Errorf("unknown coding %q", coding)
	}
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(plain, maxDecoded+1))
	if err == nil && len(body) > maxDecoded {
		err = errors.New("too many bytes")
	}
	return body, err
}
