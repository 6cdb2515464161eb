// Package redact keeps passwords and keys out of logs.
//
// Caddy copies a request for its logs before any handler of a site runs. So [Fields.Withhold] takes
// the secrets out before Caddy's handler runs, and the gateway's handler puts them back with
// [PutBack].
package redact
