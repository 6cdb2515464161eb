package egress

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// wire is one end of an in-memory connection whose halves can be closed separately.
type wire struct {
	*io.PipeReader
	*io.PipeWriter
}

func (w wire) Close() error      { w.PipeWriter.Close(); return w.PipeReader.Close() }
func (w wire) CloseWrite() error { return w.PipeWriter.Close() }

// newWire returns both ends.
func newWire() (wire, wire) {
	r1, w1 := io.Pipe()
	r2, w2 := io.Pipe()
	return wire{r1, w2}, wire{r2, w1}
}

// noHalf is an end whose sending half cannot be closed alone, like an HTTP/2 stream.
type noHalf struct{ io.ReadWriteCloser }

func startRelay(ctx context.Context, client, origin io.ReadWriteCloser, idle time.Duration) <-chan error {
	out := make(chan error, 1)
	go func() {
		_, err := relay(ctx, client, origin, &watch{idle: idle})
		out <- err
	}()
	return out
}

func TestRelayHalfCloses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, a := newWire()
		b, origin := newWire()
		out := startRelay(t.Context(), a, b, time.Minute)
		big := strings.Repeat("x", 3*copyBufferSize+17)
		go func() { io.WriteString(client, big); client.CloseWrite() }()
		if got, err := io.ReadAll(origin); err != nil || string(got) != big {
			t.Errorf("the origin got %d bytes, error %v", len(got), err)
		}
		go func() { io.WriteString(origin, "answer"); origin.CloseWrite() }()
		if got, err := io.ReadAll(client); err != nil || string(got) != "answer" {
			t.Errorf("the client got %q, error %v", got, err)
		}
		if err := <-out; err != nil {
			t.Errorf("Relay returned %v, want nil", err)
		}
	})
}

// TestRelayIdle checks that a byte in one direction keeps both open, and that the relay ends
// without any.
func TestRelayIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, a := newWire()
		b, origin := newWire()
		start := time.Now()
		out := startRelay(t.Context(), a, b, time.Minute)
		buf := make([]byte, 1)
		for range 10 { // one direction only
			time.Sleep(50 * time.Second)
			io.WriteString(client, "x")
			io.ReadFull(origin, buf)
		}
		if err := <-out; !errors.Is(err, errStalled) {
			t.Errorf("Relay returned %v, want errStalled", err)
		}
		if took := time.Since(start); took != 560*time.Second {
			t.Errorf("Relay took %v, want a minute after the last byte", took)
		}
		if _, err := client.Read(buf); err == nil {
			t.Error("the client's end is still open")
		}
		if _, err := origin.Read(buf); err == nil {
			t.Error("the origin's end is still open")
		}
	})
}

func TestRelayEndsWithContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, late := range []bool{false, true} {
			_, a := newWire()
			b, _ := newWire()
			ctx, cancel := context.WithCancelCause(t.Context())
			reason := errors.New("reload")
			if !late {
				cancel(reason)
			}
			out := startRelay(ctx, a, b, time.Minute)
			synctest.Wait()
			cancel(reason)
			if err := <-out; !errors.Is(err, reason) {
				t.Errorf("Relay returned %v, want %v", err, reason)
			}
		}
	})
}

// TestRelayWithoutHalf checks that the relay ends with the other end if one end cannot be
// half-closed.
func TestRelayWithoutHalf(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, a := newWire()
		b, origin := newWire()
		out := startRelay(t.Context(), noHalf{a}, b, time.Minute)
		go func() { io.WriteString(origin, "bye"); origin.CloseWrite() }()
		if got, err := io.ReadAll(client); err != nil || string(got) != "bye" {
			t.Errorf("the client got %q, error %v", got, err)
		}
		if err := <-out; err != nil {
			t.Errorf("Relay returned %v, want nil", err)
		}
	})
}

// TestRelayBlames checks that the kind of an error tells which end failed.
func TestRelayBlames(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	tests := []struct {
		name string
		fail func(client, origin wire)
		want Kind
	}{
		{"client breaks", func(c, _ wire) { c.CloseWithError(broken) }, KindClientGone},
		{"origin breaks", func(_, o wire) { o.CloseWithError(broken) }, KindIncomplete},
		{"client does not read", func(c, o wire) { c.PipeReader.CloseWithError(broken); io.WriteString(o, "x") }, KindClientGone},
		{"origin does not read", func(c, o wire) { o.PipeReader.CloseWithError(broken); io.WriteString(c, "x") }, KindIncomplete},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			client, a := newWire()
			b, origin := newWire()
			out := startRelay(t.Context(), a, b, time.Minute)
			synctest.Wait()
			tt.fail(client, origin)
			err := <-out
			if got, ok := errors.AsType[*Error](err); !ok || !errors.Is(err, broken) || got.Kind != tt.want {
				t.Errorf("%s: error %v, want the kind %v", tt.name, err, tt.want)
			}
		})
	}
}

func (w wire) CloseWithError(err error) { w.PipeWriter.CloseWithError(err) }
