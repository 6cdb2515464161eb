//go:build slow

package egress

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crawlgate/crawlgate/integration/rig"
)

// netns is a network namespace without a name. It disappears with its processes and this one,
// however they end.
type netns struct {
	t  *testing.T
	fd int
}

// needNetns skips a test on a laptop that cannot make network namespaces; CI fails.
func needNetns(t *testing.T, programs ...string) {
	t.Helper()
	for _, program := range programs {
		rig.Need(t, program)
	}
	switch {
	case os.Geteuid() == 0:
	case os.Getenv("CRAWLGATE_REQUIRE_ALL") == "1":
		t.Fatal("network namespaces need root")
	default:
		t.Skip("network namespaces need root")
	}
}

func newNetns(t *testing.T) *netns {
	t.Helper()
	n := &netns{t: t, fd: -1}
	err := onThread(func() (err error) {
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			n.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		return err
	})
	if err != nil {
		t.Fatalf("making a network namespace: %v", err)
	}
	t.Cleanup(func() { _ = unix.Close(n.fd) })
	n.sh("ip link set lo up")
	return n
}

// onThread calls do on a thread that ends with it, so that do can change the thread's own state.
func onThread(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- do()
	}()
	return <-done
}

// as calls do on a thread in the namespace with the rights of a user.
func (n *netns) as(uid int, do func() error) error {
	return onThread(func() error {
		if err := unix.Setns(n.fd, unix.CLONE_NEWNET); err != nil {
			return err
		}
		if uid != 0 {
			// The functions of package syscall would change all threads.
			for _, call := range []uintptr{unix.SYS_SETRESGID, unix.SYS_SETRESUID} {
				if _, _, errno := unix.RawSyscall(call, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
					return errno
				}
			}
		}
		return do()
	})
}

// command runs a program in the namespace as a user, with only the given environment. It returns
// when the program has ended, and ends it with the test.
func (n *netns) command(ctx context.Context, uid int, env []string, out *rig.Tail, args ...string) error {
	return n.as(0, func() error {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
		cmd.Stdout, cmd.Stderr, cmd.Dir = out, out, "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)},
			Pdeathsig:  syscall.SIGKILL,
		}
		return cmd.Run()
	})
}

// sh runs shell commands in the namespace as root, and returns their output.
func (n *netns) sh(lines string) string {
	n.t.Helper()
	var out []byte
	err := n.as(0, func() (err error) {
		cmd := exec.CommandContext(n.t.Context(), "sh", "-euc", lines)
		cmd.Stdin = bytes.NewReader(nil)
		out, err = cmd.CombinedOutput()
		return err
	})
	if err != nil {
		n.t.Fatalf("%s: %v\n%s", lines, err, out)
	}
	return string(out)
}

// link connects two namespaces by interfaces of the given names, with the addresses
// 198.51.100.(8i+1) and (8i+2), and 2001:db8:i::1 and ::2.
func link(i int, a *netns, nameA string, b *netns, nameB string) {
	a.t.Helper()
	a.sh(fmt.Sprintf("ip link add name %s type veth peer name %s netns /proc/%d/fd/%d", nameA, nameB, os.Getpid(), b.fd))
	a.addr(i, 1, nameA)
	b.addr(i, 2, nameB)
}

// addr gives an interface the j-th address of link i.
func (n *netns) addr(i, j int, name string) {
	n.t.Helper()
	n.sh(fmt.Sprintf("ip addr add %s/29 dev %s; ip -6 addr add %s/64 dev %[2]s nodad; ip link set dev %[2]s up",
		linkAddr4(i, j), name, linkAddr6(i, j)))
}

func linkAddr4(i, j int) string { return fmt.Sprintf("198.51.100.%d", 8*i+j) }
func linkAddr6(i, j int) string { return fmt.Sprintf("2001:db8:%d::%d", i, j) }

// route sends all traffic to other networks to the j-th end of link i.
func (n *netns) route(i, j int) {
	n.t.Helper()
	n.sh("ip route add default via " + linkAddr4(i, j) + "; ip -6 route add default via " + linkAddr6(i, j))
}

// forwards makes the namespace a router.
func (n *netns) forwards() {
	n.t.Helper()
	n.sh("echo 1 >/proc/sys/net/ipv4/ip_forward; echo 1 >/proc/sys/net/ipv6/conf/all/forwarding")
}

// counter reads the packets of a counter of nftables.
func (n *netns) counter(table, name string) int {
	n.t.Helper()
	text := n.sh("nft list counter inet " + table + " " + name)
	_, after, _ := strings.Cut(text, "packets ")
	number, _, _ := strings.Cut(after, " ")
	packets, err := strconv.Atoi(number)
	if err != nil {
		n.t.Fatalf("counter %s: %v in %s", name, err, text)
	}
	return packets
}
