package fetch

import "net/http"

// ftpFile is the outcome of an FTP server's answer (seeds 000 and 002: RETR, anonymous
// login), which the transport gives as if it were HTTP's. A file that is not there, or is
// a directory, is absent; all else, a refused login included, is unreachable. There are no
// redirects, no freshness and no status in FTP.
func (x *exchange) ftpFile(limit int) Outcome {
	var out Outcome
	switch x.StatusCode {
	case http.StatusOK:
		out = x.rules(limit)
	case http.StatusNotFound, http.StatusMovedPermanently:
		out = x.absent(CauseFTP, x.said())
	default:
		out = failf(CauseFTP, "%s", x.said()).outcome(0)
	}
	out.Status = 0
	return out
}

// said is the text of a short answer, as much of it as there is.
func (x *exchange) said() string {
	text, _, _ := x.read(maxDetail)
	return detailf("%s", text)
}
