package robotstxt

// What an octet can mean in a path. An octet of class 0 stands for itself everywhere.
const (
	octetStar     = 1 << iota // * : any run of octets, in a rule
	octetPercent              // % : begins an escape
	octetIllegal              // must be escaped in a URI (RFC 3986 section 2)
	octetQuery                // ? : the first one begins the query
	octetReserved             // : / @ [ ] : the same raw and escaped in a query, as is ?
	octetDollar               // $ : the same raw and escaped everywhere; at the end of a rule it is the end
	octetFragment             // # : ends a target
	octetBlank                // space, tab, vertical tab, form feed
	octetHex                  // hex digit
	octetLetter               // may be in a product token (RFC 9309 section 2.2.1)
)

// octetClass classifies all octets for the walks over rules, targets and lines.
var octetClass = func() [256]uint16 {
	var t [256]uint16
	for c := range t {
		if c <= ' ' || c >= 0x7F {
			t[c] = octetIllegal
		}
	}
	set := func(octets string, class uint16) {
		for i := range len(octets) {
			t[octets[i]] |= class
		}
	}
	set("\"<>\\^`{|}", octetIllegal)
	set("*", octetStar)
	set("%", octetPercent)
	set("?", octetQuery)
	set("$", octetDollar)
	set(":/@[]", octetReserved)
	set("#", octetFragment)
	set(" \t\v\f", octetBlank)
	set("0123456789abcdefABCDEF", octetHex)
	set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_", octetLetter)
	return t
}()

func isHex(c byte) bool { return octetClass[c]&octetHex != 0 }

func isBlank(c byte) bool { return octetClass[c]&octetBlank != 0 }

func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// isUnreserved: RFC 3986 section 2.3.
func isUnreserved(c byte) bool {
	switch c {
	case '-', '.', '_', '~':
		return true
	}
	return isLetter(c) || c >= '0' && c <= '9'
}

// lower folds ASCII letters only: robots.txt knows no other case (RFC 9309 section 2.2).
func lower(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		return c + ('a' - 'A')
	}
	return c
}
