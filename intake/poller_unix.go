//go:build unix

package intake

import (
	"errors"
	"os"
	"runtime"
	"syscall"
)

// poller asks the runtime's network poller. It is not safe for concurrent use. The pipe stays open for as long as the
// process runs.
type poller struct {
	w    *os.File
	conn syscall.RawConn // the pipe's reading end
}

// ask makes a pipe readable and waits until the poller says so. The kernel reports what is ready in the order in which it
// became so: by then all that were ready before have been made runnable.
func (p *poller) ask() {
	if p.w == nil && !p.open() {
		runtime.Gosched() // better than nothing, until there are descriptors again
		return
	}
	asked := false
	_ = p.conn.Read(func(fd uintptr) bool {
		if !asked {
			asked = true
			_, err := p.w.Write([]byte{1})
			return err != nil
		}
		var b [64]byte // one octet is there; none must stay
		for {
			if _, err := syscall.Read(int(fd), b[:]); !errors.Is(err, syscall.EINTR) {
				return true
			}
		}
	})
}

func (p *poller) open() bool {
	r, w, err := os.Pipe()
	if err != nil {
		return false
	}
	if p.conn, err = r.SyscallConn(); err != nil {
		_ = r.Close()
		_ = w.Close()
		return false
	}
	p.w = w
	return true
}
