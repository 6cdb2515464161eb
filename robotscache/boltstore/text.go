package boltstore

import (
	"encoding/binary"
	"fmt"

	"github.com/klauspost/compress/zstd"
	bolt "go.etcd.io/bbolt"

	"github.com/crawlgate/crawlgate/robotscache"
)

// The value of a text, whose key is its SHA-256:
//
//	uvarint number of origins that refer to it
//	byte    codec: 0 as it is, 1 zstd
//	uvarint length of the text
//	        the text, encoded
//
// zstd at its default level makes the corpus 4.6 times smaller (a file of median
// length 3 times) and takes 3 µs to decode such a file; s2 comes to 3.3 times.
const (
	codecNone byte = iota
	codecZstd
)

// maxText bounds what a damaged length can make us allocate: far more than any
// robots.txt that is read (DESIGN §7: max_size).
const maxText = 64 << 20

func newCodec() (*zstd.Encoder, *zstd.Decoder, error) {
	encoder, err := zstd.NewWriter(nil,
		zstd.WithEncoderConcurrency(1), // one writer
		zstd.WithWindowSize(512<<10),
		zstd.WithLowerEncoderMem(true),
		zstd.WithEncoderCRC(false)) // the key is a better one
	if err != nil {
		return nil, nil, fmt.Errorf("making the compressor: %w", err)
	}
	decoder, err := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(0),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(maxText),
		zstd.WithDecodeAllCapLimit(true)) // no text is longer than it says
	if err != nil {
		return nil, nil, fmt.Errorf("making the decompressor: %w", err)
	}
	return encoder, decoder, nil
}

type textValue struct {
	refs uint64
	data []byte // codec, length and text
}

func decodeTextValue(value []byte) (textValue, error) {
	refs, n := binary.Uvarint(value)
	if n <= 0 || len(value) < n+2 {
		return textValue{}, fmt.Errorf("%w: malformed text", robotscache.ErrCorrupt)
	}
	return textValue{refs: refs, data: value[n:]}, nil
}

func (v textValue) encode() []byte {
	value := make([]byte, 0, binary.MaxVarintLen64+len(v.data))
	value = binary.AppendUvarint(value, v.refs)
	return append(value, v.data...)
}

// compress makes the data of a text.
func (s *Store) compress(text []byte) []byte {
	head := make([]byte, 1, 1+binary.MaxVarintLen64+len(text))
	head = binary.AppendUvarint(head, uint64(len(text)))
	if short := s.encoder.EncodeAll(text, nil); len(short) < len(text) {
		head[0] = codecZstd
		return append(head, short...)
	}
	return append(head, text...)
}

// decompress returns a text, in memory of its own.
func (s *Store) decompress(data []byte) ([]byte, error) {
	size, n := binary.Uvarint(data[1:])
	if n <= 0 || size > maxText {
		return nil, fmt.Errorf("%w: malformed text", robotscache.ErrCorrupt)
	}
	text, encoded := make([]byte, 0, size), data[1+n:]
	switch data[0] {
	case codecNone:
		return append(text, encoded...), nil
	case codecZstd:
		text, err := s.decoder.DecodeAll(encoded, text)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", robotscache.ErrCorrupt, err)
		}
		return text, nil
	default:
		return nil, fmt.Errorf("%w: text with codec %d", robotscache.ErrCorrupt, data[0])
	}
}

// text reads a text. Its hash is for the caller to check.
func (s *Store) text(tx *bolt.Tx, sha [32]byte) ([]byte, error) {
	value := tx.Bucket(textsBucket).Get(sha[:])
	if value == nil {
		return nil, fmt.Errorf("text %x: %w", sha, robotscache.ErrNotFound)
	}
	v, err := decodeTextValue(value)
	if err != nil {
		return nil, err
	}
	return s.decompress(v.data)
}

// hold counts one more origin that refers to a text. The text is given in case it
// is new, or cannot be read any more: a commit must not fail for damage that it
// can mend.
func (s *Store) hold(texts *bolt.Bucket, sha [32]byte, text []byte) error {
	v, err := decodeTextValue(texts.Get(sha[:]))
	if err != nil {
		v = textValue{data: s.compress(text)}
	}
	v.refs++
	return texts.Put(sha[:], v.encode())
}

// release counts one origin less, and deletes the text with the last.
func release(texts *bolt.Bucket, sha [32]byte) error {
	v, err := decodeTextValue(texts.Get(sha[:]))
	if err != nil || v.refs <= 1 {
		return texts.Delete(sha[:])
	}
	v.refs--
	return texts.Put(sha[:], v.encode())
}
