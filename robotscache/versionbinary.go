package robotscache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
)

// The binary form of a version, integers big-endian:
//
//	byte     state
//	[32]byte sha256
//	int64    first seen, last seen: Unix nanoseconds
//	uint16   status
//	uint32   size
//	uint8    length of the cause, and the cause
//
// What makes two versions one ([Version.Continues]) is the first VersionHead
// bytes, and FirstSeen comes right after: stores that merge versions without
// decoding them may rely on it.
const (
	VersionHead  = 1 + 32
	versionFixed = VersionHead + 8 + 8 + 2 + 4 + 1
)

var errVersion = errors.New("malformed version")

// AppendBinary appends the binary form of v. It fails for what it cannot say.
func (v Version) AppendBinary(b []byte) ([]byte, error) {
	if v.Status < 0 || v.Status > math.MaxUint16 || v.Size < 0 || v.Size > math.MaxUint32 || len(v.Cause) > math.MaxUint8 {
		return b, fmt.Errorf("encoding a version: status %d, size %d or cause of %d octets out of bounds", v.Status, v.Size, len(v.Cause))
	}
	b = append(b, byte(v.State))
	b = append(b, v.SHA256[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(v.FirstSeen.UnixNano()))
	b = binary.BigEndian.AppendUint64(b, uint64(v.LastSeen.UnixNano()))
	b = binary.BigEndian.AppendUint16(b, uint16(v.Status))
	b = binary.BigEndian.AppendUint32(b, uint32(v.Size))
	b = append(b, byte(len(v.Cause)))
	return append(b, v.Cause...), nil
}

// DecodeVersions decodes versions that stand one after the other.
func DecodeVersions(b []byte) ([]Version, error) {
	var all []Version
	for len(b) > 0 {
		if len(b) < versionFixed {
			return nil, errVersion
		}
		cause := int(b[versionFixed-1])
		if len(b) < versionFixed+cause {
			return nil, errVersion
		}
		all = append(all, Version{
			State:     fetch.State(b[0]),
			SHA256:    [32]byte(b[1:VersionHead]),
			FirstSeen: unixNano(b[VersionHead:]),
			LastSeen:  unixNano(b[VersionHead+8:]),
			Status:    int(binary.BigEndian.Uint16(b[VersionHead+16:])),
			Size:      int(binary.BigEndian.Uint32(b[VersionHead+18:])),
			Cause:     fetch.Cause(b[versionFixed : versionFixed+cause]),
		})
		b = b[versionFixed+cause:]
	}
	return all, nil
}

func unixNano(b []byte) time.Time {
	return time.Unix(0, int64(binary.BigEndian.Uint64(b))).UTC()
}
