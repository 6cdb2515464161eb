// Package ftphttp answers HTTP requests for ftp URLs by asking the FTP server.
package ftphttp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"mime"
	"net"
	"net/http"
	"net/textproto"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/jlaffaye/ftp"

	"github.com/crawlgate/crawlgate/egress/guard"
)

// Dial connects to a port of an FTP server. control is nil for the control connection. For a data
// connection it is the control connection, to whose address the data connection must go: the
// address in the server's answer to PASV is ignored.
type Dial func(ctx context.Context, host string, port uint16, control net.Conn) (net.Conn, error)

// RoundTrip answers a request for an ftp URL as an HTTP origin would (RFC 1738 section 3.2.2). The
// method must be GET or HEAD. timeout bounds all replies up to a transfer, a listing, and the last
// reply.
//
// The path begins at the server's root, as /robots.txt does, whatever directory a login leads to. A
// path that ends in a slash is a directory. Replies become statuses: 550 about a path is 404, a
// refused login is 403, 421 is 503 and every other refusal is 502.
//
// A path that has another spelling, and a directory without its slash, are redirected to their only
// URL. So the rules have always judged the name of the file that is read.
func RoundTrip(r *http.Request, timeout time.Duration, dial Dial) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close() // the contract of RoundTripper
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return nil, fmt.Errorf("method %q is not possible with FTP", r.Method)
	}
	s := &session{dial: dial, timeout: timeout, request: r}
	s.ctx, s.end = context.WithCancel(r.Context())
	escaped := r.URL.EscapedPath()
	if one := spelling.Replace(escaped); one != escaped {
		return s.redirect(one), nil
	}
	resp, err := s.converse()
	if reply, ok := errors.AsType[*textproto.Error](err); ok && reply.Code >= 400 {
		return s.refused(reply), nil
	}
	if _, ok := errors.AsType[textproto.ProtocolError](err); ok && s.control.failed != nil {
		err = s.control.failed // the limit cut the line, which the library took for a whole one
	}
	if err != nil {
		s.end()
	}
	return resp, err
}

// session is one GET or HEAD of an ftp URL over a control connection of its own (RFC 959). It logs
// in as anonymous, transfers bytes unchanged in passive mode, and sends no command that writes. The
// library that speaks the protocol has neither contexts nor limits: the connections made here add
// both.
type session struct {
	dial    Dial
	timeout time.Duration
	request *http.Request

	ctx     context.Context
	end     context.CancelFunc // closes the connections
	client  *ftp.ServerConn
	control *controlConn // nil before it is connected
	listing bool         // the next data connection is for a listing
}

// spelling resolves the escapes of bytes that a path may contain unescaped (RFC 3986 section 3.3).
// Rules distinguish such a byte from its escape (RFC 9309 section 2.2.2), but an FTP server gets
// the byte in both cases. The semicolon is missing because RFC 1738 reserves it.
var spelling = strings.NewReplacer(
	"%21", "!", "%24", "$", "%26", "&", "%27", "'", "%28", "(", "%29", ")", "%2A", "*", "%2a", "*",
	"%2B", "+", "%2b", "+", "%2C", ",", "%2c", ",", "%3A", ":", "%3a", ":", "%3D", "=", "%3d", "=",
	"%40", "@", "%5B", "[", "%5b", "[", "%5D", "]", "%5d", "]",
)

// converse logs in and asks for the path.
func (s *session) converse() (resp *http.Response, err error) {
	defer func() {
		// The library relies on the form of some replies, such as the brackets in the reply to PASV.
		if p := recover(); p != nil {
			resp, err = nil, fmt.Errorf("reading a reply of an FTP server: %v", p)
		}
	}()
	port := cmp.Or(s.request.URL.Port(), strconv.Itoa(guard.FTPPort))
	s.client, err = ftp.Dial(net.JoinHostPort(s.request.URL.Hostname(), port),
		ftp.DialWithDialFunc(s.connect), ftp.DialWithDisabledUTF8(true), ftp.DialWithShutTimeout(s.timeout))
	if err != nil {
		return nil, err
	}
	if err := s.client.Login("anonymous", "anonymous@"); err != nil {
		// The library drops the code of a refused USER.
		if code, _ := strconv.Atoi(string(s.control.reply)); s.control.command == "USER" && code >= 400 {
			return nil, &textproto.Error{Code: code, Msg: err.Error()}
		}
		return nil, err
	}
	if strings.HasSuffix(s.request.URL.Path, "/") {
		return s.directory()
	}
	return s.file()
}

// file answers with a file. It answers HEAD from SIZE and MDTM (RFC 3659), without a transfer.
func (s *session) file() (*http.Response, error) {
	name := s.request.URL.Path
	size, sizeErr := s.client.FileSize(name)
	modified, timeErr := s.client.GetTime(name)
	if sizeErr != nil || size < 0 || size == 0 && s.request.Method == http.MethodGet {
		size = -1 // servers report 0 for files that they make on demand
	}
	header := make(http.Header)
	if timeErr == nil {
		header.Set("Last-Modified", modified.UTC().Format(http.TimeFormat))
	}
	contentType := mime.TypeByExtension(path.Ext(name))
	if contentType == "" {
		contentType = "application/octet-stream"
	}
	header.Set("Content-Type", contentType)

	var body io.ReadCloser
	err := sizeErr
	if s.request.Method == http.MethodGet {
		body, err = s.transfer(size)
	} else if timeErr == nil {
		err = nil
	}
	_, refused := errors.AsType[*textproto.Error](err)
	if refused && s.control.aboutPath() && s.client.ChangeDir(name) == nil {
		return s.redirect(s.request.URL.EscapedPath() + "/"), nil
	}
	if err != nil {
		return nil, err
	}
	return s.respond(http.StatusOK, header, size, body), nil
}

func (s *session) directory() (*http.Response, error) {
	name := strings.TrimSuffix(s.request.URL.Path, "/")
	if name == "" {
		name = "/"
	}
	// Servers would take an argument of LIST for a pattern, or for options.
	if err := s.client.ChangeDir(name); err != nil {
		return nil, err
	}
	header, write := pageFor(s.request.Header)
	if s.request.Method == http.MethodHead {
		return s.respond(http.StatusOK, header, -1, nil), nil
	}
	entries, err := s.list()
	if err != nil {
		return nil, err
	}
	_ = s.client.Quit() // a courtesy
	return s.page(http.StatusOK, header, write(s.request.URL.Path, entries)), nil
}

// refused answers for a server that has refused a command.
func (s *session) refused(reply *textproto.Error) *http.Response {
	status := http.StatusBadGateway
	switch {
	case reply.Code == ftp.StatusNotAvailable:
		status = http.StatusServiceUnavailable
	case reply.Code == ftp.StatusNotLoggedIn:
		status = http.StatusForbidden
	case reply.Code == ftp.StatusFileUnavailable && s.control.aboutPath():
		status = http.StatusNotFound
	}
	text := fmt.Sprintf("The FTP server answers: %d %s\n", reply.Code, reply.Msg)
	header := http.Header{"Content-Type": {"text/plain; charset=utf-8"}}
	return s.page(status, header, strings.ToValidUTF8(text, "\uFFFD"))
}

func (s *session) redirect(escaped string) *http.Response {
	return s.page(http.StatusMovedPermanently, http.Header{"Location": {escaped}}, "")
}

// page answers with a text and ends the session.
func (s *session) page(status int, header http.Header, text string) *http.Response {
	s.end()
	return s.respond(status, header, int64(len(text)), io.NopCloser(strings.NewReader(text)))
}

// respond answers with a body of the given length, -1 if it is unknown. A HEAD gets no body, and
// ends the session.
func (s *session) respond(status int, header http.Header, length int64, body io.ReadCloser) *http.Response {
	if length >= 0 {
		header.Set("Content-Length", strconv.FormatInt(length, 10))
	}
	if s.request.Method == http.MethodHead {
		s.end()
		body = http.NoBody
	}
	return &http.Response{
		StatusCode: status, Proto: "FTP", Header: header, Body: body, ContentLength: length, Request: s.request,
	}
}

// list returns the entries of the current directory. It asks by MLSD if the server has it and
// otherwise by LIST, and by NLST if it understands nothing of LIST's answer.
func (s *session) list() ([]*ftp.Entry, error) {
	s.listing = true
	entries, err := s.client.List("")
	err = transferDone(err)
	if _, refused := errors.AsType[*textproto.Error](err); len(entries) > 0 || err != nil && !refused {
		return entries, err
	}
	names, nameErr := s.client.NameList("")
	nameErr = transferDone(nameErr)
	if _, refused := errors.AsType[*textproto.Error](nameErr); refused {
		return nil, err // many servers answer 550 for an empty directory
	}
	for _, name := range names {
		entries = append(entries, &ftp.Entry{Name: name})
	}
	return entries, nameErr
}

// pageFor chooses the form of a directory: plain text if the client asks for that and not for HTML,
// else HTML.
func pageFor(request http.Header) (header http.Header, write func(dir string, entries []*ftp.Entry) string) {
	accept := strings.ToLower(strings.Join(request["Accept"], ","))
	contentType, write := "text/html; charset=utf-8", htmlPage
	if strings.Contains(accept, "text/plain") && !strings.Contains(accept, "text/html") {
		contentType, write = "text/plain; charset=utf-8", textPage
	}
	return http.Header{"Content-Type": {contentType}, "Vary": {"Accept"}}, write
}

// textPage writes one name per line.
func textPage(_ string, entries []*ftp.Entry) string {
	var b strings.Builder
	for _, name := range names(entries) {
		b.WriteString(strings.ToValidUTF8(name, "\uFFFD"))
		b.WriteByte('\n')
	}
	return b.String()
}

// htmlPage writes a page of links. A link has the bytes of a name as the server sent them, in any
// encoding.
func htmlPage(dir string, entries []*ftp.Entry) string {
	shown := func(s string) string { return html.EscapeString(strings.ToValidUTF8(s, "\uFFFD")) }
	var b strings.Builder
	b.WriteString("<!DOCTYPE html>\n<html>\n<head>\n<meta charset=\"utf-8\">\n<title>" + shown(dir) +
		"</title>\n</head>\n<body>\n<h1>" + shown(dir) + "</h1>\n<ul>\n")
	for _, name := range names(entries) {
		bare, isDir := strings.CutSuffix(name, "/")
		href := "./" + spelling.Replace(url.PathEscape(bare)) // ./ keeps a: from being a scheme
		if isDir {
			href += "/"
		}
		b.WriteString("<li><a href=\"" + html.EscapeString(href) + "\">" + shown(name) + "</a></li>\n")
	}
	b.WriteString("</ul>\n</body>\n</html>\n")
	return b.String()
}

// names returns the names of entries, with a slash after directories. It leaves out those that
// cannot be the name of something in the directory.
func names(entries []*ftp.Entry) (list []string) {
	unfit := func(r rune) bool { return r < ' ' || r == 0x7f || r == '/' || r == '\\' }
	for _, e := range entries {
		name := e.Name
		if name == "" || name == "." || name == ".." || strings.ContainsFunc(name, unfit) {
			continue
		}
		if e.Type == ftp.EntryTypeFolder {
			name += "/"
		}
		list = append(list, name)
	}
	return list
}
