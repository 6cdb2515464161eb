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

// listening returns the address of every listening TCP socket in the network namespace of this
// process.
func listening() ([]netip.AddrPort, error) {
	var all []netip.AddrPort
	for _, name := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		table, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) && len(all) > 0 {
			continue // a kernel without IPv6
		}
		var some []netip.AddrPort
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

// parseTable reads the addresses of the listening sockets from the text of /proc/net/tcp or tcp6,
// which the kernel's documentation describes in proc_net_tcp. It skips lines that it does not
// understand. It stops at the first socket in another state: the kernel lists the listening ones
// first, and reading on past tens of thousands of others takes about 0.1 s.
func parseTable(table io.Reader) ([]netip.AddrPort, error) {
	const listen, handshake = 0x0A, 0x03 // before Linux 4.4, handshakes were among the listening ones
	var list []netip.AddrPort
	lines := bufio.NewScanner(table)
	lines.Scan() // the headings
	for lines.Scan() {
		var host []byte
		var port, state uint16
		var other string // columns that do not matter
		_, err := fmt.Sscanf(lines.Text(), "%s %x:%x %s %x", &other, &host, &port, &other, &state)
		if err != nil || state == handshake || len(host)%4 != 0 {
			continue
		}
		if state != listen {
			break
		}
		for word := host; len(word) > 0; word = word[4:] { // in the byte order of this machine
			binary.NativeEndian.PutUint32(word, binary.BigEndian.Uint32(word))
		}
		if addr, ok := netip.AddrFromSlice(host); ok {
			list = append(list, netip.AddrPortFrom(addr.Unmap(), port))
		}
	}
	return list, lines.Err()
}
