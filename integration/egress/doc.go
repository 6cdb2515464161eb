// Package egress holds the tests of the firewall rules in examples/egress: clients and the real binary run in network
// namespaces, and no packet of a crawler reaches a site except through the gateway. It has only tests.
package egress
