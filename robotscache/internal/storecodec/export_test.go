package storecodec

// Sum returns a value with its checksum.
var Sum = appendSum
