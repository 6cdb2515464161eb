package main

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"

	"github.com/crawlgate/crawlgate/bench/process"
)

// variant is one of the gateways that are compared.
type variant struct{ name, directive string }

var enforcing = variant{"enforce", "robots"}

var variants = []variant{
	{"bare", "bare"},
	{"off", "robots {\n\t\tmode off\n\t}"},
	enforcing,
	{"sealed", "robots"}, // with -log, the log is sealed
}

// caddyfile disables what limits the load, since there is only one origin.
const caddyfile = `{
	admin off
	persist_config off
	robots {
		store none
		pace {
			rate off
			concurrency 10000
		}
		egress {
			allow_private 127.0.0.0/8
			trust_ca %[4]s
		}
	}
}

http://:%[1]s {
	bind 127.0.0.1
	%[2]s
	%[3]s
}
`

// gateway is a running gateway.
type gateway struct {
	*process.Gateway
	roots *x509.CertPool // that clients trust inside tunnels
}

// startGateway runs a gateway that trusts the certificate of the secure origin.
func startGateway(ctx context.Context, v variant, secure *site, log bool) (*gateway, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p, err := process.Start(ctx, []string{self}, func(port, dir string) (string, error) {
		logging := ""
		if log {
			// Compressing a full file takes seconds, which would count for whichever gateway does it.
			output := "file " + filepath.Join(dir, "access.log") + " {\n\t\t\troll_disabled\n\t\t}"
			if v.name == "sealed" {
				output = "robots_evidence {\n\t\t\t" + output + "\n\t\t}"
			}
			logging = "log {\n\t\toutput " + output + "\n\t}"
		}
		trusted := filepath.Join(dir, "origins.pem")
		certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})
		return fmt.Sprintf(caddyfile, port, logging, v.directive, trusted), os.WriteFile(trusted, certificate, 0o600)
	})
	return &gateway{Gateway: p}, err
}
