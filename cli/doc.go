// Package cli has the commands below `crawlgate robots`: they check URLs and files by themselves,
// and query and control a running gateway through its admin API. docs/cli.md describes them.
package cli
