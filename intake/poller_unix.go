//go:build unix

package intake

import (
	"errors"
	"os"
	"runtime"
	"syscall"
	"time"
)

// poller asks the runtime's network poller. It is not safe for concurrent use. The pipe stays open for as long as the
// process runs.
type poller struct {
	r, w *os.File // of a pipe; nil: none is open
	conn syscall.RawConn
}

// ask makes a pipe readable and waits until the poller says so. The kernel reports what is ready in the order in which it
// became so: by then all that were ready before have been made runnable.
func (p *poller) ask() {
	if p.w == nil && !p.open() {
		runtime.Gosched() // better than nothing, until there are descriptors again
		return
	}
	asked := false
	err := p.conn.Read(func(fd uintptr) bool {
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
	if err != nil {
		p.close()
		runtime.Gosched()
	}
}

// open reports whether there is a pipe now. One that epoll did not take (it has a limit of its own) is open too, but nobody would
// be told of what is in it until it is full; that it refuses deadlines tells.
func (p *poller) open() bool {
	var err error
	if p.r, p.w, err = os.Pipe(); err != nil {
		p.r, p.w = nil, nil
		return false
	}
	p.conn, err = p.r.SyscallConn()
	if errors.Join(err, p.r.SetReadDeadline(time.Time{}), p.w.SetWriteDeadline(time.Time{})) != nil {
		p.close()
		return false
	}
	return true
}

func (p *poller) close() {
	_ = p.r.Close()
	_ = p.w.Close()
	*p = poller{}
}

// spent is the CPU time that the process has had so far; 0 if the system does not tell.
func spent() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
