package storecodec

// Sum returns a value with its checksum.
var Sum = appendSum

// Decompress decodes a text without checking its hash.
func (t *TextCodec) Decompress(data []byte) ([]byte, error) { return t.decompress(data) }
