// Package cli has the commands below `crawlgate robots`: they check URLs and files by themselves,
// and ask and order a running gateway by its admin API. docs/cli.md describes them.
package cli
