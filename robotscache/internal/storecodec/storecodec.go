package storecodec

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/klauspost/compress/zstd"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checked is what a store keeps under a key. Check reports a contradiction in it.
type Checked interface{ Check() error }

// Encode returns the value of a head and v. Its error is a [robotscache.ErrInvalid].
func Encode(head []byte, v Checked) ([]byte, error) {
	data, err := json.Marshal(v)
	if err := errors.Join(err, v.Check()); err != nil {
		return nil, fmt.Errorf("%w: %w", robotscache.ErrInvalid, err)
	}
	return appendSum(append(head, data...)), nil
}

func appendSum(value []byte) []byte {
	return binary.BigEndian.AppendUint32(value, crc32.Checksum(value, castagnoli))
}

// Decode sets v from a value with a head of the given size in bytes. A value that is damaged, or of
// another format, is a [robotscache.ErrCorrupt].
func Decode(value []byte, head int, v Checked) error {
	end := len(value) - crc32.Size
	if end < head || crc32.Checksum(value[:end], castagnoli) != binary.BigEndian.Uint32(value[end:]) {
		return fmt.Errorf("%w: checksum of %d bytes", robotscache.ErrCorrupt, len(value))
	}
	err := json.Unmarshal(value[head:end], v)
	if err == nil {
		err = v.Check()
	}
	if err != nil {
		return fmt.Errorf("%w: %w", robotscache.ErrCorrupt, err)
	}
	return nil
}

// maxText bounds the memory for a damaged text, far above the limits on the size of a robots.txt.
const maxText = 64 << 20

// TextCodec compresses texts. Safe for concurrent use.
type TextCodec struct {
	encoder *zstd.Encoder
	decoder *zstd.Decoder
}

// NewTexts returns a compressor.
func NewTexts() *TextCodec {
	// Their only errors are of options out of range.
	encoder, _ := zstd.NewWriter(nil,
		zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(512<<10),
		zstd.WithLowerEncoderMem(true),
		zstd.WithZeroFrames(true),  // the empty text is one too
		zstd.WithEncoderCRC(false)) // texts have a better one
	decoder, _ := zstd.NewReader(nil,
		zstd.WithDecoderConcurrency(0),
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxMemory(maxText))
	return &TextCodec{encoder: encoder, decoder: decoder}
}

// Encode returns the compressed form of a text.
func (t *TextCodec) Encode(text []byte) []byte { return t.encoder.EncodeAll(text, nil) }

// Decode returns the text of a hash from its compressed form. A malformed one, or the text of
// another hash, is a [robotscache.ErrCorrupt].
func (t *TextCodec) Decode(data []byte, sha fetch.Sum) ([]byte, error) {
	text, err := t.decompress(data)
	if err == nil && sha256.Sum256(text) != sha {
		err = fmt.Errorf("%w: the SHA-256 of a text is not %x", robotscache.ErrCorrupt, sha)
	}
	if err != nil {
		return nil, err
	}
	return text, nil
}

func (t *TextCodec) decompress(data []byte) ([]byte, error) {
	text, err := t.decoder.DecodeAll(data, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", robotscache.ErrCorrupt, err)
	}
	return text, nil
}

// SetText gives a record that was loaded its text, which get returns compressed. Where that does
// not find it, the record is not found either: it is of no use.
func (t *TextCodec) SetText(r *fetch.Record, get func(sha fetch.Sum) ([]byte, error)) error {
	want, ok := r.Text()
	if !ok {
		return nil
	}
	data, err := get(want.SHA256)
	if err != nil {
		return err
	}
	text, err := t.decompress(data)
	if err != nil {
		return err
	}
	if err := r.SetBody(text); err != nil {
		return fmt.Errorf("%w: %w", robotscache.ErrCorrupt, err)
	}
	return nil
}

// TextOf returns the text of a record that is to be saved, if it has one. A text that is not the
// one of its hash is an ErrInvalid.
func TextOf(r fetch.Record) (text fetch.Copy, ok bool, err error) {
	if text, ok = r.Text(); ok {
		err = r.SetBody(text.Body)
	}
	if err != nil {
		return text, ok, fmt.Errorf("%w: %w", robotscache.ErrInvalid, err)
	}
	return text, ok, nil
}
