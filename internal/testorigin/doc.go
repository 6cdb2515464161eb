// Package testorigin is an origin server that misbehaves on demand: the other
// side of every test of robots.txt retrieval, enforcement and pacing.
//
// A [Server] has [Site]s. A site is one origin, http or https, on a port of its
// own that the kernel chose, at an address of its own in 127.0.0.0/16. What it
// answers to GET /robots.txt is a [Behaviour], which a test may swap at any
// moment:
//
//	server := testorigin.Start(t, testorigin.Config{})
//	site := server.Site(t, testorigin.SiteConfig{Scheme: "https", Paths: []string{"/a", "/b"}})
//	site.SetRobots(testorigin.OK("User-agent: *\nDisallow: /a\n"))
//	...
//	site.SetRobots(testorigin.HangInBody("User-agent: *\nDisallow: /\n", 20))
//
// Every other path answers with a small HTML page. The site keeps a bounded
// record of what was asked and how it answered ([Site.Exchanges]) and of the
// behaviours that were in force ([Site.History]), all by its own clock, so that
// an oracle can say afterwards what a client had to know and when.
//
// With [Config.InMemory] there are no sockets: sites are reached by
// [Server.DialContext] alone, over pipes, so that hanging and dripping sites can
// be tested in a testing/synctest bubble.
//
// Sites speak HTTP/1.1 through an implementation of their own, since net/http
// refuses to send most of what is to be sent here. They do not speak HTTP/2.
package testorigin
