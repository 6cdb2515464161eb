// Package caddylog is Caddy's log writer `robots_evidence`: it seals an access log with package
// evidence/sealer and writes it through Caddy's own file writer. module.go has the options, log.go
// the open logs. Caddy opens log writers before the configuration runs, so the engine calls [Start]
// when it is about to run.
package caddylog
