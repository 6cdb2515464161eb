package robotstxt

import (
	"bytes"
	"math"
	"math/bits"
	"time"
)

// parseCrawlDelay reads seconds as decimal digits with at most one point. Signs, exponents, units
// and decimal commas are no numbers here, as peers read them in ways too different to guess what a
// site means.
func parseCrawlDelay(s []byte) (time.Duration, bool) {
	whole, fraction, _ := bytes.Cut(s, []byte{'.'})
	if len(whole)+len(fraction) == 0 {
		return 0, false
	}
	seconds, ok := parseDigits(whole)
	if !ok {
		return 0, false
	}
	if _, ok = parseDigits(fraction); !ok {
		return 0, false
	}
	nanos := uint64(0)
	for i := range 9 {
		nanos *= 10
		if i < len(fraction) {
			nanos += uint64(fraction[i] - '0')
		}
	}
	if seconds > (math.MaxInt64-nanos)/uint64(time.Second) {
		return math.MaxInt64, true
	}
	return time.Duration(seconds)*time.Second + time.Duration(nanos), true
}

// parseRequestRate reads documents/period, both of up to 18 digits, with an optional unit s, m, h
// or d of the period. The pause is period/documents.
func parseRequestRate(s []byte) (time.Duration, bool) {
	left, right, _ := bytes.Cut(s, []byte{'/'})
	unit := time.Second
	if n := len(right); n > 0 {
		switch lower(right[n-1]) {
		case 's':
			right = right[:n-1]
		case 'm':
			right, unit = right[:n-1], time.Minute
		case 'h':
			right, unit = right[:n-1], time.Hour
		case 'd':
			right, unit = right[:n-1], 24*time.Hour
		}
	}
	if len(left) == 0 || len(left) > maxDigits || len(right) == 0 || len(right) > maxDigits {
		return 0, false
	}
	documents, ok := parseDigits(left)
	if !ok || documents == 0 {
		return 0, false
	}
	period, ok := parseDigits(right)
	if !ok {
		return 0, false
	}
	hi, lo := bits.Mul64(period, uint64(unit))
	if hi >= documents {
		return math.MaxInt64, true
	}
	quotient, _ := bits.Div64(hi, lo, documents)
	return time.Duration(min(quotient, math.MaxInt64)), true
}

// maxDigits is the length of the longest numbers that are exact.
const maxDigits = 18

// parseDigits reads decimal digits; too large a number is the largest. No digits are 0.
func parseDigits(s []byte) (uint64, bool) {
	n := uint64(0)
	for _, c := range s {
		if c < '0' || c > '9' {
			return 0, false
		}
		if n > (math.MaxUint64-9)/10 {
			n = math.MaxUint64
			continue
		}
		n = n*10 + uint64(c-'0')
	}
	return n, true
}
