package egress

import "sync"

// copyBufferSize is what one read of a body or tunnel takes at most. 32 KiB holds two of TLS's largest records.
const copyBufferSize = 32 << 10

// buffers holds copy buffers. All are of one size, so nothing oversized is ever kept.
var buffers = sync.Pool{New: func() any { return new([copyBufferSize]byte) }}

func getBuffer() *[copyBufferSize]byte {
	b, ok := buffers.Get().(*[copyBufferSize]byte)
	if !ok {
		b = new([copyBufferSize]byte)
	}
	return b
}

func putBuffer(b *[copyBufferSize]byte) { buffers.Put(b) }
