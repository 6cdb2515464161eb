//go:build linux || darwin

package sockets

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
)

// DescriptorLimit returns how many files and connections the process may have open, or 0 if that is
// unknown.
func DescriptorLimit() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(limit.Cur, math.MaxInt32))
}

// folder is the open folder of descriptors. It stays open, because a process without free
// descriptors could not open it again.
var folder struct {
	sync.Mutex
	file *os.File
}

// Own lists the sockets at which this process listens. A socket with several descriptors is listed
// once for each. The error is errors.ErrUnsupported if the system does not tell. With 10,000
// descriptors it takes some 15 ms.
func Own() ([]Socket, error) {
	names, err := descriptorNames()
	if err != nil {
		return nil, fmt.Errorf("listing descriptors: %w", err)
	}
	var list []Socket
	for _, name := range names {
		fd, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		// A descriptor that was closed since, or is no socket, gives an error.
		if v, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN); err != nil || v == 0 {
			continue
		}
		list = append(list, Socket{addrOf(fd), inodeOf(fd)})
	}
	return list, nil
}

func descriptorNames() ([]string, error) {
	folder.Lock()
	defer folder.Unlock()
	if folder.file == nil {
		file, err := os.Open(descriptors)
		if err != nil {
			return nil, err
		}
		folder.file = file
	}
	if _, err := folder.file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	names, err := folder.file.Readdirnames(-1)
	if err == nil && !slices.Contains(names, strconv.Itoa(int(folder.file.Fd()))) {
		err = fmt.Errorf("%s is not of this process: %w", descriptors, errors.ErrUnsupported)
	}
	return names, err
}

func addrOf(fd int) netip.AddrPort {
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return netip.AddrPort{}
	}
	switch name := name.(type) {
	case *syscall.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(name.Addr), uint16(name.Port))
	case *syscall.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(name.Addr).Unmap(), uint16(name.Port))
	default:
		return netip.AddrPort{}
	}
}

func inodeOf(fd int) uint64 {
	var stat syscall.Stat_t
	if err := syscall.Fstat(fd, &stat); err != nil {
		return 0
	}
	return stat.Ino
}
