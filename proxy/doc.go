// Package proxy takes one request through the gateway: absolute form, CONNECT, requests inside
// tunnels and those for the gateway itself. Each way begins at [Site.ServeHTTP], which checks the
// client and finds out what the request is for. exchange.go has the way of a proxied request,
// connect.go the way of a CONNECT, landing.go what the gateway answers by itself. Every exchange is
// accounted for once, however its request ends (accesslog.go).
package proxy
