package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"
)

// httpsWays compares interception with plain HTTP, and with the same upstream protocol without
// interception, because TLS to the origin has a cost too. The others are compared with the first.
func httpsWays(sites map[upstream]*site) []way {
	h1 := tunneled(&tls.Config{NextProtos: []string{"http/1.1"}})
	usual := tunneled(&tls.Config{})
	hybrid := tunneled(&tls.Config{CurvePreferences: []tls.CurveID{tls.X25519MLKEM768}})
	p256 := tunneled(&tls.Config{CurvePreferences: []tls.CurveID{tls.CurveP256}, MaxVersion: tls.VersionTLS12})
	return []way{
		{"plain", sites[originHTTP], absolute, false, false},
		{"absolute https, h1 origin", sites[originTLS], absolute, false, false},
		{"intercepted h1, h1 origin", sites[originTLS], h1, false, false},
		{"intercepted h2, h1 origin", sites[originTLS], overHTTP2, false, false},
		{"the same, in one tunnel", sites[originTLS], overOneHTTP2(), false, false},
		{"absolute https, h2 origin", sites[originHTTP2], absolute, false, false},
		{"intercepted h1, h2 origin", sites[originHTTP2], h1, false, false},
		{"intercepted h2, h2 origin", sites[originHTTP2], overHTTP2, false, false},
		{"the same, in one tunnel", sites[originHTTP2], overOneHTTP2(), false, false},
		{"plain, new connection", sites[originHTTP], absolute, true, false},
		{"new tunnel alone, TLS 1.3", sites[originTLS], usual, true, true},
		{"new tunnel, TLS 1.3", sites[originTLS], usual, true, false},
		{"new tunnel, TLS 1.3 hybrid", sites[originTLS], hybrid, true, false},
		{"new tunnel, TLS 1.2 P-256", sites[originTLS], p256, true, false},
	}
}

// freshShare divides the number of requests when each has its own connection.
const freshShare = 5

// measureHTTPS prints a line for each way: the median of its rounds, the median of their ratios to
// the first way in the same round, and the lowest round. Ratios are taken within a round because
// the machine's speed may differ by half between rounds. The lowest round is the one that other
// work disturbed least.
func measureHTTPS(ctx context.Context, o options, sites map[upstream]*site) error {
	g, err := startGateway(ctx, enforcing, sites[originTLS], o.log)
	if err != nil {
		return fmt.Errorf("starting the gateway: %w", err)
	}
	defer g.Stop()
	if g.roots, err = g.authority(ctx); err != nil {
		return err
	}
	all := slices.DeleteFunc(httpsWays(sites), func(w way) bool { return !o.ways.MatchString(w.name) })
	costs := make([][]float64, len(all))
	for round := range o.rounds + 1 { // the first one warms up
		for turn := range all {
			i := (round + turn) % len(all)
			requests := o.requests
			if all[i].fresh {
				requests /= freshShare
			}
			used, err := g.load(ctx, all[i], o.connections, requests)
			if err != nil {
				return fmt.Errorf("%s: %w", all[i].name, err)
			}
			if round > 0 {
				costs[i] = append(costs[i], float64(used)/float64(time.Microsecond)/float64(requests))
			}
		}
	}
	fmt.Printf("%d requests a round over %d connections (or %d connections); CPU µs a request\n", o.requests, o.connections, o.requests/freshShare)
	for i, w := range all {
		ratios := make([]float64, len(costs[i]))
		for round, c := range costs[i] {
			ratios[round] = c / costs[0][round]
		}
		least := slices.Min(costs[i])
		fmt.Printf("%-28s median%8.1f (%.2f of the first in the same round)  least%8.1f (%.2f)\n",
			w.name, median(costs[i]), median(ratios), least, least/slices.Min(costs[0]))
	}
	return nil
}

// authority returns the CA certificate that the gateway serves to its clients.
func (g *gateway) authority(ctx context.Context) (*x509.CertPool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+g.Addr+"/ca.crt", http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(body) {
		return nil, fmt.Errorf("the gateway sent no certificate: %.100q", body)
	}
	return pool, nil
}
