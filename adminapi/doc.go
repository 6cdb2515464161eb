// Package adminapi extends Caddy's admin endpoint below /robots/: the records of origins, the
// explanation of a decision, the stops, the clocks. It answers for the current configuration.
// Caddy controls the access to it (admin in the global options). docs/admin-api.md describes
// it.
package adminapi
