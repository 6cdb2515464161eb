package egress

import (
	"errors"
	"html"
	"iter"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"

	"github.com/jlaffaye/ftp"
)

// list asks for the entries of the current directory: by MLSD where the server has it, else by
// LIST, and by NLST where LIST gives nothing that is understood.
func (s *ftpSession) list() ([]*ftp.Entry, error) {
	s.listing = true
	entries, err := s.client.List("")
	err = ftpDone(err)
	if _, refused := errors.AsType[*textproto.Error](err); len(entries) > 0 || err != nil && !refused {
		return entries, err
	}
	names, nameErr := s.client.NameList("")
	nameErr = ftpDone(nameErr)
	if _, refused := errors.AsType[*textproto.Error](nameErr); refused {
		return nil, err // many servers say 550 of an empty directory
	}
	for _, name := range names {
		entries = append(entries, &ftp.Entry{Name: name})
	}
	return entries, nameErr
}

// ftpPageFor chooses the form of a directory: plain text if the client asks for that and not for
// HTML, else HTML.
func ftpPageFor(request http.Header) (header http.Header, write func(dir string, entries []*ftp.Entry) string) {
	accept := strings.ToLower(strings.Join(request["Accept"], ","))
	contentType, write := "text/html; charset=utf-8", ftpHTML
	if strings.Contains(accept, "text/plain") && !strings.Contains(accept, "text/html") {
		contentType, write = "text/plain; charset=utf-8", ftpText
	}
	return http.Header{"Content-Type": {contentType}, "Vary": {"Accept"}}, write
}

// ftpText writes one name a line.
func ftpText(_ string, entries []*ftp.Entry) string {
	var b strings.Builder
	for name := range ftpNames(entries) {
		b.WriteString(strings.ToValidUTF8(name, "\uFFFD"))
		b.WriteByte('\n')
	}
	return b.String()
}

// ftpHTML writes a page of links. A link has the octets of a name as the server gave them, in
// whatever encoding.
func ftpHTML(dir string, entries []*ftp.Entry) string {
	shown := func(s string) string { return html.EscapeString(strings.ToValidUTF8(s, "\uFFFD")) }
	var b strings.Builder
	b.WriteString("<!DOCTYPE html>\n<html>\n<head>\n<meta charset=\"utf-8\">\n<title>" + shown(dir) +
		"</title>\n</head>\n<body>\n<h1>" + shown(dir) + "</h1>\n<ul>\n")
	for name := range ftpNames(entries) {
		bare, isDir := strings.CutSuffix(name, "/")
		href := "./" + ftpSpelling.Replace(url.PathEscape(bare)) // ./ keeps a: from being a scheme
		if isDir {
			href += "/"
		}
		b.WriteString("<li><a href=\"" + html.EscapeString(href) + "\">" + shown(name) + "</a></li>\n")
	}
	b.WriteString("</ul>\n</body>\n</html>\n")
	return b.String()
}

// ftpNames goes over the names of entries, with a slash behind directories. It leaves out names that
// are no name of something in the directory.
func ftpNames(entries []*ftp.Entry) iter.Seq[string] {
	unfit := func(r rune) bool { return r < ' ' || r == 0x7f || r == '/' || r == '\\' }
	return func(yield func(string) bool) {
		for _, e := range entries {
			name := e.Name
			if name == "" || name == "." || name == ".." || strings.ContainsFunc(name, unfit) {
				continue
			}
			if e.Type == ftp.EntryTypeFolder {
				name += "/"
			}
			if !yield(name) {
				return
			}
		}
	}
}
