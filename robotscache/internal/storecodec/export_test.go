package storecodec

// Sum returns a value with its checksum.
var Sum = appendSum

// Decompress is Decode without the hash.
func (t *TextCodec) Decompress(data []byte) ([]byte, error) { return t.decompress(data) }
