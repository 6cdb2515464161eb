// Package h1 sends requests without a body over HTTP/1.1, in the goroutine of the caller.
//
// Most requests of a crawler are of this kind. net/http's transport serves each connection with two
// goroutines and two buffers, even while it is idle; here an idle connection has none.
// [http.Request.Write] and [http.ReadResponse] do the writing and reading.
package h1
