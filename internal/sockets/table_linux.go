package sockets

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
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
	const (
		localAddress, state, inode = 1, 3, 9    // columns
		listen, handshake          = "0A", "03" // before Linux 4.4, handshakes stood among the former
	)
	var list []Socket
	lines := bufio.NewScanner(table)
	lines.Scan() // the headings
	for lines.Scan() {
		fields := bytes.Fields(lines.Bytes())
		if len(fields) <= inode || string(fields[state]) == handshake {
			continue
		}
		if string(fields[state]) != listen {
			break
		}
		addr, ok := parseAddr(fields[localAddress])
		n, err := strconv.ParseUint(string(fields[inode]), 10, 64)
		if ok && err == nil {
			list = append(list, Socket{addr, n})
		}
	}
	return list, lines.Err()
}

// parseAddr reads "0100007F:0BB8": words of 32 bits as this machine holds them, and a port.
func parseAddr(text []byte) (netip.AddrPort, bool) {
	host, portText, found := bytes.Cut(text, []byte(":"))
	raw := make([]byte, hex.DecodedLen(len(host)))
	_, err := hex.Decode(raw, host)
	port, portErr := strconv.ParseUint(string(portText), 16, 16)
	if !found || err != nil || portErr != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for word := raw; len(word) > 0; word = word[4:] {
		binary.NativeEndian.PutUint32(word, binary.BigEndian.Uint32(word))
	}
	addr, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr.Unmap(), uint16(port)), ok
}

func holder(inode uint64) string {
	links, err := filepath.Glob("/proc/[0-9]*/fd/*") // of processes of other users it finds none
	if err != nil {
		return ""
	}
	want := fmt.Sprintf("socket:[%d]", inode)
	for _, link := range links {
		if to, err := os.Readlink(link); err != nil || to != want {
			continue
		}
		process := filepath.Dir(filepath.Dir(link))
		command, err := os.ReadFile(filepath.Join(process, "comm"))
		if err != nil {
			return ""
		}
		return fmt.Sprintf("%s (pid %s)", bytes.TrimSpace(command), filepath.Base(process))
	}
	return ""
}
