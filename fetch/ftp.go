package fetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jlaffaye/ftp"

	"github.com/crawlgate/crawlgate/origin"
)

// maxFTPReplies bounds, to a buffer, what a server may say on its control connection. The six
// replies of a retrieval need a few hundred octets, greetings some thousand.
const maxFTPReplies = 64 << 10

// errTalkative is a server that went over maxFTPReplies.
var errTalkative = errors.New("too much text on the control connection")

// fetchFTP retrieves /robots.txt by RETR with an anonymous login (seeds 000 and
// 002). A file that is not there (550 to RETR) is absent; all else, a refused
// login included, is unreachable. There are no redirects, no freshness and no
// status in FTP.
func (f *Fetcher) fetchFTP(ctx context.Context, o origin.Origin) Outcome {
	if f.dialFTP == nil {
		return failf(CauseFTP, "FTP is not configured").outcome(0)
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &ftpSession{ctx: ctx, fetcher: f, host: o.Host}
	stop := context.AfterFunc(ctx, s.closeAll)
	defer func() {
		cancel()
		stop()
		s.closeAll()
	}()

	text, more, err := s.retrieve(o.HostPort())
	switch {
	case err == nil:
		return Outcome{Kind: KindRules, Body: text, Truncated: more}
	case s.retr.Load() && isReply(err, ftp.StatusFileUnavailable):
		return Outcome{Kind: KindAbsent, Cause: CauseFTP, Detail: detailf("%s", err)}
	case isReply(err, 0):
		return failf(CauseFTP, "%s", reason(err)).outcome(0)
	case errors.Is(err, errFTPData):
		return brokenBody(ctx, err).outcome(0)
	default:
		return failed(ctx, err).outcome(0)
	}
}

// errFTPData marks errors of the transfer itself.
var errFTPData = errors.New("transfer")

// isReply reports whether err is a reply of the server with this code, any code
// if it is 0.
func isReply(err error, code int) bool {
	var reply *textproto.Error
	return errors.As(err, &reply) && (code == 0 || reply.Code == code)
}

// ftpSession is one retrieval. The library that speaks the protocol knows
// neither contexts nor limits: the connections made here bring both.
type ftpSession struct {
	ctx     context.Context
	fetcher *Fetcher
	host    string
	// retr is set when RETR has been sent: only then 550 is about the file.
	retr atomic.Bool

	mu     sync.Mutex
	conns  []*ftpConn
	closed bool
}

// retrieve runs the session.
func (s *ftpSession) retrieve(addr string) (text []byte, more bool, err error) {
	c, err := ftp.Dial(addr, ftp.DialWithDialFunc(s.dial), ftp.DialWithDisabledUTF8(true), ftp.DialWithDisabledMLSD(true))
	if err != nil {
		return nil, false, err
	}
	if err := c.Login("anonymous", "anonymous@"); err != nil {
		return nil, false, loginError(err)
	}
	file, err := c.Retr("/robots.txt")
	if err != nil {
		return nil, false, err
	}
	limit := s.fetcher.maxSize
	text, err = io.ReadAll(io.LimitReader(file, int64(limit)+1))
	if len(text) > limit {
		return text[:limit:limit], true, nil
	}
	if err == nil {
		// Only the reply on the control connection tells a complete file from a
		// connection that was cut.
		err = file.Close()
	}
	switch {
	case err == nil:
		c.Quit() //nolint:errcheck,gosec // a courtesy
		return text, false, nil
	case len(text) == limit:
		return text, true, nil
	default:
		return nil, false, fmt.Errorf("%w: %w", errFTPData, ftpDataError(err))
	}
}

// loginError turns the library's plain error for a refused USER into the reply
// that it was.
func loginError(err error) error {
	var (
		reply    *textproto.Error
		protocol textproto.ProtocolError
		network  net.Error
	)
	if errors.As(err, &reply) || errors.As(err, &protocol) || errors.As(err, &network) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errTalkative) {
		return err
	}
	return &textproto.Error{Code: ftp.StatusNotLoggedIn, Msg: err.Error()}
}

// ftpDataError keeps the text of a reply that ended a transfer, but not its type:
// it is not a refusal of the request.
func ftpDataError(err error) error {
	if isReply(err, 0) {
		return errors.New(err.Error())
	}
	return err
}

// dial opens the control connection, then the data connection. The library gives
// the latter the address of the former's peer whatever PASV answers; with a peer
// of unknown address the host is dialed again. Either way it passes the guard.
func (s *ftpSession) dial(network, address string) (net.Conn, error) {
	s.mu.Lock()
	control := len(s.conns) == 0
	s.mu.Unlock()

	if host, port, err := net.SplitHostPort(address); err == nil && !control && host == unknownPeer.IP.String() {
		address = net.JoinHostPort(s.host, port)
	}
	ctx, cancel := context.WithTimeoutCause(s.ctx, s.fetcher.headerTimeout, errHeaderTimeout)
	defer cancel()
	raw, err := s.fetcher.dialFTP(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &ftpConn{Conn: raw, session: s, control: control}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		raw.Close() //nolint:errcheck,gosec // the session is over
		return nil, net.ErrClosed
	}
	s.conns = append(s.conns, c)
	return c, nil
}

func (s *ftpSession) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, c := range s.conns {
		c.Close() //nolint:errcheck,gosec // nothing more is wanted of it
	}
}

// ftpConn is a connection with limits on each wait and, for the control
// connection, on all that the server says.
type ftpConn struct {
	net.Conn

	session *ftpSession
	control bool
	read    int
}

// unknownPeer stands for the address of a peer behind something that is not TCP.
var unknownPeer = &net.TCPAddr{IP: net.IPv4zero}

// RemoteAddr returns the peer's TCP address: the library expects one.
func (c *ftpConn) RemoteAddr() net.Addr {
	if addr, ok := c.Conn.RemoteAddr().(*net.TCPAddr); ok && addr.IP != nil {
		return addr
	}
	return unknownPeer
}

// Read implements io.Reader. A reply may take as long as a response header, data
// as long as a stalled body.
func (c *ftpConn) Read(p []byte) (int, error) {
	limit := c.session.fetcher.stallTimeout
	if c.control {
		limit = c.session.fetcher.headerTimeout
		if c.read >= maxFTPReplies {
			return 0, errTalkative
		}
	}
	c.SetReadDeadline(time.Now().Add(limit)) //nolint:errcheck,gosec // fails where Read will
	n, err := c.Conn.Read(p)
	if c.control && c.read == 0 && n > 0 {
		TurnOf(c.session.ctx).Answered(c.session.ctx) // to the connection, and so to what will be asked
	}
	c.read += n
	return n, err
}

// Write implements io.Writer.
func (c *ftpConn) Write(p []byte) (int, error) {
	if c.control && strings.HasPrefix(string(p), "RETR ") {
		c.session.retr.Store(true)
	}
	c.SetWriteDeadline(time.Now().Add(c.session.fetcher.headerTimeout)) //nolint:errcheck,gosec // fails where Write will
	return c.Conn.Write(p)
}
