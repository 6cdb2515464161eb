package sockets

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// world is a machine with sockets and addresses set by a test.
type world struct {
	sockets []Socket
	addrs   []netip.Addr
	err     error
	looks   int
}

func (w *world) watch() *Watch {
	return &Watch{
		Own: func() ([]Socket, error) {
			w.looks++
			return w.sockets, w.err
		},
		Interfaces: func() ([]netip.Addr, error) { return w.addrs, nil },
	}
}

func TestWatchAt(t *testing.T) {
	t.Parallel()
	w := &world{
		sockets: []Socket{socket("[::]:3128", 1), socket("127.0.0.1:2019", 2), {Inode: 3}, socket("10.0.0.5:8080", 4), socket("127.0.0.1:8080", 5)},
		addrs:   []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("2001:db8::5"), netip.MustParseAddr("8.8.8.8")},
	}
	watch := w.watch()
	for _, tt := range []struct {
		target string
		public bool
		want   []string
	}{
		{"127.0.0.1:3128", false, []string{"[::]:3128"}},
		{"127.9.9.9:3128", false, []string{"[::]:3128"}},
		{"[::1]:3128", false, []string{"[::]:3128"}},
		{"0.0.0.0:3128", false, []string{"[::]:3128"}},
		{"[::]:3128", false, []string{"[::]:3128"}},
		{"10.0.0.5:3128", false, []string{"[::]:3128"}},
		{"[2001:db8::5]:3128", false, []string{"[::]:3128"}},
		{"8.8.8.8:3128", true, []string{"[::]:3128"}},
		{"8.8.4.4:3128", true, nil},
		{"10.0.0.6:3128", false, nil},
		{"10.0.0.5:3129", false, nil},
		{"127.0.0.1:2019", false, []string{"127.0.0.1:2019"}},
		{"10.0.0.5:2019", false, []string{"127.0.0.1:2019"}}, // every address of the machine
		{"127.0.0.2:8080", false, []string{"10.0.0.5:8080", "127.0.0.1:8080"}},
	} {
		got, err := watch.At(netip.MustParseAddrPort(tt.target), tt.public)
		var texts []string
		for _, a := range got {
			texts = append(texts, a.String())
		}
		if err != nil || !slices.Equal(texts, tt.want) {
			t.Errorf("%s: %v, %v, want %v", tt.target, texts, err, tt.want)
		}
	}
}

// TestWatchUnknown checks that if the sockets cannot be listed, only addresses of this machine are
// affected.
func TestWatchUnknown(t *testing.T) {
	t.Parallel()
	w := &world{err: errors.ErrUnsupported, addrs: []netip.Addr{netip.MustParseAddr("10.0.0.5")}}
	for target, want := range map[string]error{
		"127.0.0.1:80": errors.ErrUnsupported, "10.0.0.5:80": errors.ErrUnsupported, "10.0.0.6:80": nil, "8.8.8.8:80": nil,
	} {
		if _, err := w.watch().At(netip.MustParseAddrPort(target), target == "8.8.8.8:80"); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", target, err, want)
		}
	}
	blind := &Watch{
		Own:        func() ([]Socket, error) { return []Socket{socket("0.0.0.0:80", 1)}, nil },
		Interfaces: func() ([]netip.Addr, error) { return nil, errors.New("no netlink") },
	}
	if at, err := blind.At(netip.MustParseAddrPort("8.8.8.8:80"), true); err != nil || len(at) != 1 {
		t.Errorf("At = %v, %v, want a socket since any address may be this machine's", at, err)
	}
}

// TestWatchKeepsAddresses checks that if the machine's addresses can no longer be listed, the last
// known ones count.
func TestWatchKeepsAddresses(t *testing.T) {
	t.Parallel()
	w := &world{sockets: []Socket{socket("[::]:80", 1)}, addrs: []netip.Addr{netip.MustParseAddr("10.0.0.5")}}
	watch := w.watch()
	var err error
	watch.Interfaces = func() ([]netip.Addr, error) { return w.addrs, err }
	for _, then := range []error{nil, errors.New("no descriptors left")} {
		err = then
		watch.Changed()
		for target, want := range map[string]int{"10.0.0.5:80": 1, "10.0.0.6:80": 0} {
			if at, err := watch.At(netip.MustParseAddrPort(target), false); err != nil || len(at) != want {
				t.Errorf("At(%s) = %v, %v", target, at, err)
			}
		}
		w.addrs = nil
	}
}

// TestWatchAge checks that a result is used for 0.2 s if the target may be this machine, otherwise
// for 10 s, and never after a change.
func TestWatchAge(t *testing.T) {
	t.Parallel()
	near, far, home := netip.MustParseAddrPort("127.0.0.1:80"), netip.MustParseAddrPort("8.8.8.8:80"), netip.MustParseAddrPort("9.9.9.9:80")
	synctest.Test(t, func(t *testing.T) {
		w := &world{addrs: []netip.Addr{home.Addr()}}
		watch := w.watch()
		ask := func(what string, ap netip.AddrPort, public bool, looks int) {
			t.Helper()
			if _, err := watch.At(ap, public); err != nil || w.looks != looks {
				t.Errorf("%s: %d looks, %v, want %d", what, w.looks, err, looks)
			}
		}
		ask("first", far, true, 1)
		ask("near, at once", near, false, 1)
		time.Sleep(nearAge)
		ask("far, later", far, true, 1)
		ask("near, later", near, false, 2)
		time.Sleep(nearAge)
		ask("public, of this machine", home, true, 3)
		time.Sleep(farAge)
		ask("far, much later", far, true, 4)
		ask("far again", far, true, 4)
		watch.Changed()
		ask("changed", far, true, 5)
	})
}

// BenchmarkAt measures the cost per guarded dial.
func BenchmarkAt(b *testing.B) {
	watch := new(Watch)
	for name, target := range map[string]string{"public": "8.8.8.8:443", "loopback": "127.0.0.1:1"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			ap := netip.MustParseAddrPort(target)
			for b.Loop() {
				if at, err := watch.At(ap, name == "public"); err != nil || at != nil {
					b.Fatal(at, err)
				}
			}
		})
	}
}
