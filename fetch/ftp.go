package fetch

import "net/http"

// ftpFile is the outcome of an FTP server's answer (seeds 000 and 002: RETR, anonymous
// login), which the transport gives as if it were HTTP's. A file that is not there, or is
// a directory, is absent; all else, a refused login included, is unreachable. There are no
// redirects, no freshness and no status in FTP.
func (resp *response) ftpFile(limit int) Outcome {
	var out Outcome
	switch resp.StatusCode {
	case http.StatusOK:
		out = resp.rules(limit)
	case http.StatusNotFound, http.StatusMovedPermanently:
		out = resp.absent(CauseFTP, resp.said())
	default:
		out = failf(CauseFTP, "%s", resp.said()).outcome(0)
	}
	out.Status = 0
	return out
}

// said is the text of a short answer, as much of it as there is.
func (resp *response) said() string {
	text, _, _ := resp.read(maxDetail)
	return detailf("%s", text)
}
