package testorigin

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
)

// FTPSite is an FTP server (RFC 959) with a few files, which can answer any command differently. It
// accepts any login and supports only passive mode. The fields are set before it is started.
type FTPSite struct {
	// Files has the contents of its files by absolute path.
	Files map[string]string
	// Dirs are its directories by absolute path without a final slash, the root as
	// "/", with the text that LIST, NLST and MLSD send.
	Dirs map[string]string
	// Replies replaces the usual replies and everything that would follow them, by command word: ""
	// for the greeting, "226" for the end of a transfer. An empty reply is not sent.
	Replies map[string]string
	// Transfer replaces what happens on the data connection, which is closed afterwards; nil writes
	// the content.
	Transfer func(control, data net.Conn, content string)

	mu       sync.Mutex
	commands []string
	open     map[io.Closer]bool // nil once it is closed
	running  sync.WaitGroup
}

// StartFTP serves site on the loopback network until the test ends, and returns
// its host:port.
func StartFTP(tb TB, site *FTPSite) string {
	tb.Helper()
	site.open = make(map[io.Closer]bool)
	tb.Cleanup(site.close)
	l := site.listen()
	site.running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			site.running.Go(func() { site.serve(conn) })
		}
	})
	return l.Addr().String()
}

// Commands returns what clients have sent so far, without passwords.
func (s *FTPSite) Commands() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.commands)
}

func (s *FTPSite) close() {
	s.mu.Lock()
	for c := range maps.Keys(s.open) {
		_ = c.Close()
	}
	s.open = nil
	s.mu.Unlock()
	s.running.Wait()
}

// keep closes c with the server, or at once if the server is already closed.
func (s *FTPSite) keep(c io.Closer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		_ = c.Close()
		return
	}
	s.open[c] = true
}

func (s *FTPSite) drop(c io.Closer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, c)
	_ = c.Close()
}

func (s *FTPSite) listen() net.Listener {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		panic(fmt.Sprintf("testorigin: listening for FTP: %v", err))
	}
	s.keep(l)
	return l
}

// ftpSession is a control connection.
type ftpSession struct {
	site    *FTPSite
	control net.Conn
	dir     string
	passive net.Listener // nil before the first PASV
}

// serve serves a control connection.
func (s *FTPSite) serve(conn net.Conn) {
	s.keep(conn)
	defer s.drop(conn)
	session := &ftpSession{site: s, control: conn, dir: "/"}
	defer session.endPassive()
	if !session.reply("", "220 ready") {
		_, _ = io.Copy(io.Discard, conn) // until the client leaves
		return
	}
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		word, arg, _ := strings.Cut(lines.Text(), " ")
		s.mu.Lock()
		s.commands = append(s.commands, lines.Text())
		s.mu.Unlock()
		session.command(word, arg)
		if word == "QUIT" {
			return
		}
	}
}

// reply sends otherwise unless Replies has something else, and reports whether it did.
func (s *ftpSession) reply(word, otherwise string) bool {
	text, custom := s.site.Replies[word]
	if !custom {
		text = otherwise
	}
	if text != "" {
		_, _ = io.WriteString(s.control, text+"\r\n") // the client may have left
	}
	return !custom
}

func (s *ftpSession) command(word, arg string) {
	usual := map[string]string{
		"USER": "331 password please", "PASS": "230 hello", "FEAT": "211 none", "TYPE": "200 binary", "QUIT": "221 bye",
	}
	content, isFile := s.site.Files[arg]
	switch word {
	case "EPSV", "PASV":
		s.enterPassive(word)
	case "SIZE":
		s.about(word, isFile, fmt.Sprintf("213 %d", len(content)))
	case "MDTM":
		s.about(word, isFile, "213 20200102030405")
	case "RETR":
		if s.about(word, isFile, "150 here it comes") {
			s.transfer(content)
		}
	case "CWD":
		if _, isDir := s.site.Dirs[arg]; s.about(word, isDir, "250 there") {
			s.dir = arg
		}
	case "LIST", "NLST", "MLSD":
		if s.reply(word, "150 here it comes") {
			s.transfer(s.site.Dirs[s.dir])
		}
	default:
		if text, ok := usual[word]; ok {
			s.reply(word, text)
		} else {
			s.reply(word, "502 what?")
		}
	}
}

// about replies to a command about a path, and reports whether the command succeeded.
func (s *ftpSession) about(word string, exists bool, text string) bool {
	if !exists {
		s.reply(word, "550 no such file or directory")
		return false
	}
	return s.reply(word, text)
}

func (s *ftpSession) enterPassive(word string) {
	s.endPassive()
	s.passive = s.site.listen()
	port := s.passive.Addr().(*net.TCPAddr).Port
	if word == "EPSV" {
		s.reply(word, fmt.Sprintf("229 passive (|||%d|)", port))
		return
	}
	// The address is wrong: clients must not use it.
	s.reply(word, fmt.Sprintf("227 passive (10,0,0,1,%d,%d)", port>>8, port&255))
}

func (s *ftpSession) endPassive() {
	if s.passive != nil {
		s.site.drop(s.passive)
	}
}

func (s *ftpSession) transfer(content string) {
	if s.passive == nil {
		s.reply("425", "425 no data connection")
		return
	}
	data, err := s.passive.Accept()
	if err != nil {
		return
	}
	s.site.keep(data)
	if s.site.Transfer != nil {
		s.site.Transfer(s.control, data, content)
	} else {
		_, _ = io.WriteString(data, content)
	}
	s.site.drop(data)
	s.reply("226", "226 done")
}
