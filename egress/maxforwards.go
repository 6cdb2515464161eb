package egress

import (
	"net/http"
	"strconv"
)

// lastHop counts Max-Forwards down, RFC 9110 section 7.6.2, and answers a request that may go no further itself: OPTIONS
// with nothing to say, TRACE with 501.
func (x *forwarding) lastHop(out http.Header) bool {
	if x.r.Method != http.MethodOptions && x.r.Method != http.MethodTrace {
		return false
	}
	n, err := strconv.ParseUint(out.Get("Max-Forwards"), 10, 32)
	if err != nil {
		return false
	}
	if n > 0 {
		out["Max-Forwards"] = []string{strconv.FormatUint(n-1, 10)}
		return false
	}
	x.res.Status, x.res.Started = http.StatusOK, true
	if x.r.Method == http.MethodTrace {
		x.res.Status = http.StatusNotImplemented
	}
	x.w.Header()["Content-Length"] = []string{"0"}
	x.w.WriteHeader(x.res.Status)
	return true
}
