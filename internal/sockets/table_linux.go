package sockets

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
)

// descriptors is the folder of this process's open descriptors.
const descriptors = "/proc/self/fd"

// listening lists all listening TCP sockets of the machine, more exactly of this process's network
// namespace.
func listening() ([]Socket, error) {
	var all []Socket
	for _, name := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		table, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) && len(all) > 0 {
			continue // a kernel without IPv6
		}
		var some []Socket
		if err == nil {
			some, err = parseTable(table)
			_ = table.Close()
		}
		if err != nil {
			return nil, fmt.Errorf("listing the sockets of the machine: %w", err)
		}
		all = append(all, some...)
	}
	return all, nil
}

// parseTable reads the listening sockets out of the text of /proc/net/tcp or tcp6, see proc_net_tcp
// in the kernel's documentation. Lines that it does not understand are left out. It ends with the
// first socket of another state, as the kernel lists those that listen first: behind them may be
// tens of thousands, which take it some 0.1 s.
func parseTable(table io.Reader) ([]Socket, error) {
	const listen, handshake = 0x0A, 0x03 // before Linux 4.4, handshakes stood among the former
	var list []Socket
	lines := bufio.NewScanner(table)
	lines.Scan() // the headings
	for lines.Scan() {
		var host []byte
		var port, state uint16
		var inode uint64
		var other string // of the columns that do not matter
		_, err := fmt.Sscanf(lines.Text(), "%s %x:%x %s %x %s %s %s %s %s %d",
			&other, &host, &port, &other, &state, &other, &other, &other, &other, &other, &inode)
		if err != nil || state == handshake || len(host)%4 != 0 {
			continue
		}
		if state != listen {
			break
		}
		for word := host; len(word) > 0; word = word[4:] { // as this machine holds it
			binary.NativeEndian.PutUint32(word, binary.BigEndian.Uint32(word))
		}
		if addr, ok := netip.AddrFromSlice(host); ok {
			list = append(list, Socket{netip.AddrPortFrom(addr.Unmap(), port), inode})
		}
	}
	return list, lines.Err()
}
