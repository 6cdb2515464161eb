package fetch

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"github.com/crawlgate/crawlgate/origin"
)

// The binary form of a record, version 1:
//
//	"CGr" version
//	string origin
//	byte   state
//	string cause, detail; uvarint status; list hops
//	time   fetched at, fresh until
//	[32]byte sha256, bool truncated              in StateRules only
//	uvarint attempts                             0 ends the payload
//	time   unreachable since, next attempt
//	time   last failure; string cause, detail; uvarint status; list hops
//	bool   last good; if true: [32]byte sha256, time fetched at, bool truncated
//	uint32 CRC-32C of everything before
//
// A string is a uvarint length and its octets, a list a uvarint count and its
// strings, a time a zero byte for none or a one, int64 seconds and uint32
// nanoseconds since 1970, a bool a byte 0 or 1. Integers are big-endian.
//
// Bodies are not part of it: stores keep them once, under their SHA-256.
const (
	recordMagic   = "CGr"
	recordVersion = 1
)

// Bounds that hold for every record which is written or read.
const (
	maxRecordString = 1024
	maxRecordHops   = 64
)

// ErrRecordVersion is wrapped by the error for a record in a form that a later
// release wrote.
var ErrRecordVersion = errors.New("unknown record version")

// errRecord is wrapped by all errors for octets that are no record.
var errRecord = errors.New("malformed record")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// MarshalBinary returns the record without its body, for a store that keeps
// bodies by their hash: see [Record.BodySHA256]. The form is stable: each
// release reads what earlier ones wrote. It fails for a record without an
// origin, and for one that contradicts itself.
func (r Record) MarshalBinary() ([]byte, error) {
	if err := r.check(); err != nil {
		return nil, fmt.Errorf("encoding the record of %s: %w", r.Origin, err)
	}
	w := recordWriter{buf: append(make([]byte, 0, 192), recordMagic...)}
	w.byte(recordVersion)
	w.string(r.Origin.String())
	w.byte(byte(r.State))
	w.reason(r.Cause, r.Detail, r.Status, r.Hops)
	w.time(r.FetchedAt)
	w.time(r.FreshUntil)
	if r.State == StateRules {
		w.buf = append(w.buf, r.SHA256[:]...)
		w.bool(r.Truncated)
	}
	w.uint(r.Attempts)
	if r.Attempts > 0 {
		w.time(r.UnreachableSince)
		w.time(r.NextAttempt)
		w.time(r.LastFailure.At)
		w.reason(r.LastFailure.Cause, r.LastFailure.Detail, r.LastFailure.Status, r.LastFailure.Hops)
		w.bool(r.LastGood != nil)
		if r.LastGood != nil {
			w.buf = append(w.buf, r.LastGood.SHA256[:]...)
			w.time(r.LastGood.FetchedAt)
			w.bool(r.LastGood.Truncated)
		}
	}
	return binary.BigEndian.AppendUint32(w.buf, crc32.Checksum(w.buf, castagnoli)), nil
}

// UnmarshalBinary sets r to the record that [Record.MarshalBinary] encoded. Its
// body is missing: until [Record.SetBody] has brought it, [Policy.Access] treats
// the record as one without a copy, and refuses where its rules should decide.
// Any octets may be given; those that are no record leave r as it was.
func (r *Record) UnmarshalBinary(data []byte) error {
	n, err := decodeRecord(data)
	if err != nil {
		return fmt.Errorf("decoding a record: %w", err)
	}
	*r = n
	return nil
}

// BodySHA256 returns the hash of the one body that belongs to the record, and
// whether one does.
func (r Record) BodySHA256() ([sha256.Size]byte, bool) {
	text, ok := r.Text()
	return text.SHA256, ok
}

// SetBody gives a decoded record its body back. It refuses one that is not the
// body of BodySHA256, and any for a record that has none.
func (r *Record) SetBody(body []byte) error {
	want, ok := r.BodySHA256()
	switch {
	case !ok:
		return fmt.Errorf("setting the body of %s: a record in state %s has none", r.Origin, r.State)
	case sha256.Sum256(body) != want:
		return fmt.Errorf("setting the body of %s: it is not the one with sha256 %x", r.Origin, want)
	case r.State == StateRules:
		r.Body = body
	default:
		lastGood := *r.LastGood // the copy may be shared with other records
		lastGood.Body = body
		r.LastGood = &lastGood
	}
	return nil
}

// check reports what a record must not be for its binary form to say all of it.
func (r *Record) check() error {
	if o, err := origin.Parse(r.Origin.String()); err != nil || o != r.Origin {
		return errors.New("its origin is not canonical")
	}
	var zero [sha256.Size]byte
	switch {
	case r.State > StateUnreachable:
		return fmt.Errorf("state %d", r.State)
	case r.State != StateRules && (r.Body != nil || r.SHA256 != zero || r.Truncated):
		return fmt.Errorf("state %s with a body", r.State)
	case r.LastGood != nil && r.State != StateUnreachable:
		return fmt.Errorf("state %s with a last good copy", r.State)
	case r.Attempts < 0 || r.Attempts > math.MaxInt32:
		return fmt.Errorf("%d attempts", r.Attempts)
	case (r.Attempts > 0) != r.failing():
		return errors.New("attempts without a run of failures, or the reverse")
	case r.Attempts == 0 && (r.State == StateUnreachable || !r.NextAttempt.IsZero() || !r.LastFailure.zero()):
		return errors.New("a failure without attempts")
	}
	return errors.Join(
		checkReason(r.Cause, r.Detail, r.Status, r.Hops),
		checkReason(r.LastFailure.Cause, r.LastFailure.Detail, r.LastFailure.Status, r.LastFailure.Hops),
		r.checkTimes(),
	)
}

func checkReason(cause Cause, detail string, status int, hops []string) error {
	if len(cause) > maxRecordString || len(detail) > maxRecordString || len(hops) > maxRecordHops || status < 0 || status > math.MaxInt32 {
		return errors.New("a cause, detail, status or hop list out of bounds")
	}
	for _, hop := range hops {
		if len(hop) > maxRecordString {
			return errors.New("a hop out of bounds")
		}
	}
	return nil
}

func (r *Record) checkTimes() error {
	times := []time.Time{r.FetchedAt, r.FreshUntil, r.UnreachableSince, r.NextAttempt, r.LastFailure.At}
	if r.LastGood != nil {
		times = append(times, r.LastGood.FetchedAt)
	}
	for _, t := range times {
		if year := t.UTC().Year(); year < 1 || year > 9999 {
			return fmt.Errorf("a time in year %d", year)
		}
	}
	return nil
}

func (f *Failure) zero() bool {
	return f.At.IsZero() && f.Cause == "" && f.Detail == "" && f.Status == 0 && len(f.Hops) == 0
}

// recordWriter appends the elements of the binary form.
type recordWriter struct{ buf []byte }

func (w *recordWriter) byte(b byte) { w.buf = append(w.buf, b) }

func (w *recordWriter) bool(b bool) {
	if b {
		w.byte(1)
		return
	}
	w.byte(0)
}

func (w *recordWriter) uint(n int) {
	w.buf = binary.AppendUvarint(w.buf, uint64(n))
}

func (w *recordWriter) string(s string) {
	w.uint(len(s))
	w.buf = append(w.buf, s...)
}

func (w *recordWriter) time(t time.Time) {
	w.bool(!t.IsZero())
	if !t.IsZero() {
		w.buf = binary.BigEndian.AppendUint64(w.buf, uint64(t.Unix()))
		w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(t.Nanosecond()))
	}
}

func (w *recordWriter) reason(cause Cause, detail string, status int, hops []string) {
	w.string(string(cause))
	w.string(detail)
	w.uint(status)
	w.uint(len(hops))
	for _, hop := range hops {
		w.string(hop)
	}
}

func decodeRecord(data []byte) (Record, error) {
	head := len(recordMagic) + 1
	if len(data) < head+crc32.Size || !bytes.HasPrefix(data, []byte(recordMagic)) {
		return Record{}, errRecord
	}
	if version := data[head-1]; version != recordVersion {
		return Record{}, fmt.Errorf("%w %d", ErrRecordVersion, version)
	}
	payload := data[:len(data)-crc32.Size]
	if crc32.Checksum(payload, castagnoli) != binary.BigEndian.Uint32(data[len(payload):]) {
		return Record{}, fmt.Errorf("%w: checksum", errRecord)
	}
	d := recordReader{buf: payload[head:]}
	r := d.record()
	if d.bad || len(d.buf) > 0 {
		return Record{}, errRecord
	}
	if err := r.check(); err != nil {
		return Record{}, fmt.Errorf("%w: %w", errRecord, err)
	}
	return r, nil
}

// recordReader takes the elements of the binary form. Once one is missing or out
// of bounds it is bad and gives zero values.
type recordReader struct {
	buf []byte
	bad bool
}

func (d *recordReader) record() Record {
	var r Record
	r.Origin, _ = origin.Parse(d.string()) // check finds what is not canonical
	r.State = State(d.byte())
	r.Cause, r.Detail, r.Status, r.Hops = d.reason()
	r.FetchedAt, r.FreshUntil = d.time(), d.time()
	if r.State == StateRules {
		r.SHA256, r.Truncated = d.sum(), d.bool()
	}
	r.Attempts = d.uint(math.MaxInt32)
	if r.Attempts > 0 {
		r.UnreachableSince, r.NextAttempt = d.time(), d.time()
		f := &r.LastFailure
		f.At = d.time()
		f.Cause, f.Detail, f.Status, f.Hops = d.reason()
		if d.bool() {
			r.LastGood = &Copy{SHA256: d.sum(), FetchedAt: d.time(), Truncated: d.bool()}
		}
	}
	return r
}

// take returns the next n octets, nil if there are fewer.
func (d *recordReader) take(n int) []byte {
	if d.bad || n > len(d.buf) {
		d.bad = true
		return nil
	}
	b := d.buf[:n]
	d.buf = d.buf[n:]
	return b
}

func (d *recordReader) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *recordReader) bool() bool {
	b := d.byte()
	d.bad = d.bad || b > 1
	return b == 1
}

func (d *recordReader) uint(limit int) int {
	n, size := binary.Uvarint(d.buf)
	if d.bad || size <= 0 || n > uint64(limit) {
		d.bad = true
		return 0
	}
	d.buf = d.buf[size:]
	return int(n)
}

func (d *recordReader) string() string { return string(d.take(d.uint(maxRecordString))) }

func (d *recordReader) sum() (sum [sha256.Size]byte) {
	copy(sum[:], d.take(len(sum)))
	return sum
}

func (d *recordReader) time() time.Time {
	if !d.bool() {
		return time.Time{}
	}
	b := d.take(12)
	if b == nil {
		return time.Time{}
	}
	return time.Unix(int64(binary.BigEndian.Uint64(b)), int64(binary.BigEndian.Uint32(b[8:]))).UTC()
}

func (d *recordReader) reason() (cause Cause, detail string, status int, hops []string) {
	cause, detail, status = Cause(d.string()), d.string(), d.uint(math.MaxInt32)
	for range d.uint(maxRecordHops) {
		hops = append(hops, d.string())
	}
	return cause, detail, status, hops
}
