//go:build linux || darwin

package sockets

import (
	"os"
	"slices"
	"syscall"
	"testing"
)

// TestOwnWithoutDescriptors uses up all descriptors of the process.
func TestOwnWithoutDescriptors(t *testing.T) {
	l := listen(t, "tcp", "127.0.0.1:0")
	if _, err := Own(); err != nil {
		t.Fatal(err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	few := limit
	few.Cur = 0
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Error(err)
		}
	}()
	if _, err := os.Open(os.DevNull); err == nil {
		t.Error("opened a file, want no descriptor left")
	}
	list, err := Own()
	if err != nil || !slices.ContainsFunc(list, func(s Socket) bool { return s.Addr.String() == l.Addr().String() }) {
		t.Errorf("%s is not in %v, %v", l.Addr(), list, err)
	}
}

// BenchmarkOwn searches 10,000 descriptors of sockets. One of them listens.
func BenchmarkOwn(b *testing.B) {
	listen(b, "tcp", "127.0.0.1:0")
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		b.Fatal(err)
	}
	for copied := fd; ; {
		defer syscall.Close(copied)
		if copied > 10_000 {
			break
		}
		if copied, err = syscall.Dup(fd); err != nil {
			b.Skipf("the process may have fewer descriptors: %v", err)
		}
	}
	for b.Loop() {
		if list, err := Own(); err != nil || len(list) != 1 {
			b.Fatal(list, err)
		}
	}
}
