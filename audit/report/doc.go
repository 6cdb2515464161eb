// Package report sums up access logs for whoever is responsible for crawlers: requests that were
// asked, allowed, refused and held, by team, agent, host and reason; preferences of sites that were
// ignored; exceptions in use; unreachable sites; and how far apart requests were. It counts what
// lines say. Package audit checks that they are true.
package report
