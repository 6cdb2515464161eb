// Package textcodec is the form in which stores keep a robots.txt.
//
//	byte    codec: 0 as it is, 1 zstd
//	uvarint length of the text
//	        the text, encoded
//
// zstd at its default level makes the corpus 4.6 times smaller (a file of median
// length 3 times) and takes 3 µs to decode such a file; s2 comes to 3.3 times.
package textcodec

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/klauspost/compress/zstd"
)

const (
	codecNone byte = iota
	codecZstd
)

// maxText bounds what a damaged length can make us allocate: far more than any
// robots.txt that is read (DESIGN §7: max_size).
const maxText = 64 << 20

var errMalformed = errors.New("malformed text")

// Codec encodes and decodes. Safe for concurrent use.
type Codec struct {
	encoder *zstd.Encoder
	decoder *zstd.Decoder
}

// New returns a codec that is to be closed.
func New() (*Codec, error) {
	encoder, err := zstd.NewWriter(nil,
		zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(512<<10),
		zstd.WithLowerEncoderMem(true),
		zstd.WithEncoderCRC(false)) // texts have a better one
	if err != nil {
		return nil, fmt.Errorf("making the compressor: %w", err)
	}
	decoder, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(0),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(maxText),
		zstd.WithDecodeAllCapLimit(true)) // no text is longer than it says
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making the decompressor: %w", err), encoder.Close())
	}
	return &Codec{encoder: encoder, decoder: decoder}, nil
}

// Encode returns the encoded form of a text.
func (c *Codec) Encode(text []byte) []byte {
	b := make([]byte, 1, 1+binary.MaxVarintLen32+len(text))
	b = binary.AppendUvarint(b, uint64(len(text)))
	if short := c.encoder.EncodeAll(text, nil); len(short) < len(text) {
		b[0] = codecZstd
		return append(b, short...)
	}
	return append(b, text...)
}

// Decode returns the text of an encoded form, in memory of its own.
func (c *Codec) Decode(b []byte) ([]byte, error) {
	if len(b) < 2 {
		return nil, errMalformed
	}
	size, n := binary.Uvarint(b[1:])
	if n <= 0 || size > maxText {
		return nil, errMalformed
	}
	codec, encoded := b[0], b[1+n:]
	switch {
	case codec == codecNone && uint64(len(encoded)) == size:
		return append(make([]byte, 0, size), encoded...), nil
	case codec == codecZstd:
		text, err := c.decoder.DecodeAll(encoded, make([]byte, 0, size))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errMalformed, err)
		}
		return text, nil
	default:
		return nil, errMalformed
	}
}

// Close releases the codec's memory.
func (c *Codec) Close() error {
	c.decoder.Close()
	return c.encoder.Close()
}
