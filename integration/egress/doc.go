// Package egress tests the firewall rules in examples/egress. Clients and the binary run in network
// namespaces, and no packet of a crawler may reach a site except through the gateway. It has only
// tests.
package egress
