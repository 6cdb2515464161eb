package testorigin

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
)

// maxHead limits a request's head in bytes, and maxBody its body: far more than a test of a gateway
// sends.
const (
	maxHead = 256 << 10
	maxBody = 64 << 20
)

var (
	errHeadTooLarge = errors.New("head too large")
	errMalformed    = errors.New("malformed head")
)

// request is a request head, read without any of net/http's corrections.
type request struct {
	method, target, proto string
	header                http.Header
	trailer               http.Header
	bodySize              int64
}

// readRequest reads a head. It returns io.EOF if the connection ends before one.
func readRequest(r *bufio.Reader) (*request, error) {
	budget := maxHead
	line, err := readLine(r, &budget)
	if err != nil {
		return nil, err
	}
	// A target with spaces is kept unchanged for the record.
	method, rest, ok := strings.Cut(line, " ")
	last := strings.LastIndexByte(rest, ' ')
	if !ok || last < 0 {
		return nil, fmt.Errorf("%w: request line %q", errMalformed, line)
	}
	req := &request{method: method, target: rest[:last], proto: rest[last+1:]}
	if req.header, err = readFields(r, &budget); err != nil {
		return nil, fmt.Errorf("reading header fields: %w", noEOF(err))
	}
	return req, nil
}

// readFields reads header or trailer fields and the empty line after them.
func readFields(r *bufio.Reader, budget *int) (http.Header, error) {
	fields := make(http.Header)
	for {
		line, err := readLine(r, budget)
		if err != nil {
			return nil, err
		}
		if line == "" {
			return fields, nil
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" || strings.ContainsAny(name, " \t") {
			return nil, fmt.Errorf("%w: field line %q", errMalformed, line)
		}
		fields.Add(name, strings.Trim(value, " \t"))
	}
}

// readLine reads up to a line feed, which it removes with the carriage return before it, and
// subtracts the bytes from budget.
func readLine(r *bufio.Reader, budget *int) (string, error) {
	var line []byte
	for {
		part, err := r.ReadSlice('\n')
		if *budget -= len(part); *budget < 0 {
			return "", errHeadTooLarge
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return strings.TrimSuffix(string(line[:len(line)-1]), "\r"), nil
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(line) > 0:
			return "", io.ErrUnexpectedEOF
		default:
			return "", err
		}
	}
}

// readBody reads and discards the body, counts its bytes, and keeps the trailer.
func (req *request) readBody(r *bufio.Reader) error {
	if codings := req.header.Get("Transfer-Encoding"); codings != "" {
		if !strings.EqualFold(codings, "chunked") {
			return fmt.Errorf("%w: transfer coding %q", errMalformed, codings)
		}
		return req.readChunkedBody(r)
	}
	text := req.header.Get("Content-Length")
	if text == "" {
		return nil
	}
	size, err := strconv.ParseUint(text, 10, 63)
	if err != nil || size > maxBody {
		return fmt.Errorf("%w: content length %q", errMalformed, text)
	}
	req.bodySize, err = io.CopyN(io.Discard, r, int64(size))
	return noEOF(err)
}

func (req *request) readChunkedBody(r *bufio.Reader) error {
	var err error
	req.bodySize, err = io.Copy(io.Discard, io.LimitReader(httputil.NewChunkedReader(r), maxBody))
	if err != nil {
		return noEOF(err)
	}
	budget := maxHead
	req.trailer, err = readFields(r, &budget)
	return noEOF(err)
}

// path returns the target's path, without scheme and authority if it has them,
// and without its query.
func (req *request) path() string {
	path := req.target
	if _, rest, ok := strings.Cut(path, "://"); ok && !strings.HasPrefix(path, "/") {
		if slash := strings.IndexAny(rest, "/?"); slash >= 0 {
			path = rest[slash:]
		} else {
			path = "/"
		}
	}
	path, _, _ = strings.Cut(path, "?")
	return path
}

// keepAlive reports whether the client wants to send more on the connection.
func (req *request) keepAlive() bool {
	connection := strings.ToLower(strings.Join(req.header.Values("Connection"), ","))
	if req.proto == "HTTP/1.0" {
		return strings.Contains(connection, "keep-alive")
	}
	return !strings.Contains(connection, "close")
}

// expectsContinue reports whether the client waits for a 100 before its body.
func (req *request) expectsContinue() bool {
	return strings.EqualFold(req.header.Get("Expect"), "100-continue")
}

// noEOF turns io.EOF in the middle of a message into io.ErrUnexpectedEOF.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
