package testorigin

import (
	"html"
	"net/http"
	"slices"
	"strings"
)

// htmlPages answers any path with a small page of links.
var htmlPages = Behaviour{
	Name:    "page",
	Meaning: MeansRules, // as a robots.txt: of HTML what parses
	serve:   servePage,
}

func servePage(s *session) error {
	path := s.request.path()
	return s.respond(Response{
		Status: http.StatusOK,
		Header: http.Header{"Content-Type": {"text/html; charset=utf-8"}},
		Body:   htmlPage(path, linksOf(s.site.paths, path)),
	})
}

// linksOf returns where the page at path leads: / to all pages, each page to the
// one after it and back to /.
func linksOf(paths []string, path string) []string {
	if path == "/" {
		return paths
	}
	links := []string{"/"}
	if i := slices.Index(paths, path); i >= 0 && i+1 < len(paths) {
		links = append(links, paths[i+1])
	}
	return links
}

func htmlPage(path string, links []string) []byte {
	var page strings.Builder
	title := html.EscapeString(path)
	page.WriteString("<!DOCTYPE html>\n<html lang=\"en\"><head><title>" + title + "</title></head>\n<body><h1>" + title + "</h1>\n<ul>\n")
	for _, link := range links {
		link = html.EscapeString(link)
		page.WriteString("<li><a href=\"" + link + "\">" + link + "</a></li>\n")
	}
	page.WriteString("</ul></body></html>\n")
	return []byte(page.String())
}
