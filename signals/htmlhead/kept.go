package htmlhead

import (
	"bytes"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// kept are the decoders of a coding that wait for the next page, maxKept at most.
type kept struct {
	idle chan *decoder
	make func() (resetter, error)
}

var (
	gzips = kept{make(chan *decoder, maxKept), func() (resetter, error) { return new(gzip.Reader), nil }}
	brs   = kept{make(chan *decoder, maxKept), func() (resetter, error) { return new(brotli.Reader), nil }}
	// One goroutine, no read-ahead, a bounded window: memory stays ours.
	zstds = kept{make(chan *decoder, maxKept), func() (resetter, error) {
		return zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxZstdWindow))
	}}
)

type resetter interface {
	io.Reader
	Reset(r io.Reader) error
}

// decoder is a decoder with what it reads.
type decoder struct {
	resetter
	in   bytes.Reader
	idle chan *decoder
}

// decoder returns one that begins to read a body.
func (k kept) decoder(body []byte) (*decoder, error) {
	var d *decoder
	select {
	case d = <-k.idle:
	default:
		r, err := k.make()
		if err != nil {
			return nil, err
		}
		d = &decoder{resetter: r, idle: k.idle}
	}
	d.in.Reset(body)
	return d, d.Reset(&d.in)
}

// Close keeps the decoder, without what it has read, if there is room for it.
func (d *decoder) Close() error {
	d.in.Reset(nil)
	select {
	case d.idle <- d:
	default:
	}
	return nil
}
