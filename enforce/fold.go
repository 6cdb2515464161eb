package enforce

// lookupFold returns m's value for the ASCII lower-case form of key. It allocates nothing.
func lookupFold[V any](m map[string]V, key string) (value V, ok bool) {
	var buf [maxToken]byte
	if len(m) == 0 || len(key) > len(buf) {
		return value, false
	}
	for i := range len(key) {
		buf[i] = lower(key[i])
	}
	value, ok = m[string(buf[:len(key)])]
	return value, ok
}

// lower returns the ASCII lower-case form of c.
func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + ('a' - 'A')
	}
	return c
}
