// Package sockets lists the TCP addresses at which this process and other processes listen. It asks
// the operating system, because Caddy does not tell the address of its admin API, and a reload
// moves listeners.
package sockets
