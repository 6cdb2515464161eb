package testorigin

import (
	"net/http"
	"slices"
	"time"
)

// bombSize and oversize are above what a crawler has to read of a robots.txt (RFC
// 9309 section 2.5: at least 500 KiB), and small enough to have many of.
const (
	bombSize = 8 << 20
	oversize = 600 << 10
)

// Catalogue returns one behaviour of each kind for sites of a scheme, all with
// the same rules where they have any: the repertoire of a chaos test and the rows
// of a table test. No two have the same name.
func Catalogue(scheme, rules string) []Behaviour {
	all := slices.Concat(correct(rules), broken(rules))
	for _, coding := range Codings {
		all = append(all, Encoded(coding, rules), LyingCoding(coding, rules), CutCoding(coding, rules), Bomb(coding, rules, bombSize))
	}
	if scheme == "https" {
		for kind := CertificateExpired; kind <= CertificateWrongHost; kind++ {
			all = append(all, BadCertificate(kind, rules))
		}
		all = append(all, HandshakeAlert(), HandshakePlain(), HandshakeHang(), HandshakeReset())
	}
	return all
}

// correct are answers that HTTP allows.
func correct(rules string) []Behaviour {
	return slices.Concat(successes(rules), statuses(), redirects())
}

func successes(rules string) []Behaviour {
	return []Behaviour{
		OK(rules),
		Respond(Response{
			Status: http.StatusPartialContent,
			Header: http.Header{"Content-Range": {"bytes 0-99/100"}},
			Body:   []byte(rules),
		}),
		Chunked(rules),
		UntilClose(rules),
		RawDeflate(rules),
		UTF16(rules),
		WrongCharset(rules),
		HTML(),
		Oversize(rules, oversize),
		Informational(OK(rules), http.StatusContinue, http.StatusEarlyHints),
	}
}

func statuses() []Behaviour {
	codes := []int{204, 300, 304, 400, 401, 403, 404, 410, 418, 429, 451, 500, 502, 503, 504, 599}
	all := make([]Behaviour, len(codes))
	for i, code := range codes {
		all[i] = Status(code)
	}
	return all
}

// redirects lead to the site's first page, which has no rules unless SetPages
// gives it some, and to nowhere.
func redirects() []Behaviour {
	toPage := Redirect(http.StatusMovedPermanently, "/")
	toPage.Meaning = MeansRules
	toNoHost := Redirect(http.StatusMovedPermanently, "http://")
	toNoHost.Meaning = MeansUnreachable
	return []Behaviour{
		toPage, toNoHost, RedirectLoop(), redirectNowhere("file:///etc/passwd"), redirectNowhere("mailto:bots@example.com"),
	}
}

// redirectNowhere is one to a scheme that no robots.txt has.
func redirectNowhere(location string) Behaviour {
	b := Redirect(http.StatusMovedPermanently, location)
	b.Meaning = MeansAbsent
	return b
}

// broken are failures of the network or of HTTP.
func broken(rules string) []Behaviour {
	half := len(rules) / 2
	return []Behaviour{
		Refuse(),
		Drip(rules, time.Minute),
		HangBeforeHead(),
		HangInHead(),
		HangInBody(rules, half),
		CloseAtOnce(),
		ResetAtOnce(),
		ResetInHead(),
		ResetInBody(rules, half),
		ShortBody(rules, half),
		MissingLastChunk(rules),
		BrokenChunk(rules),
		InvalidStatusLine(rules),
		NotHTTP(),
		ConflictingLengths(rules),
		EndlessHead(),
		OnlyInformational(http.StatusContinue, http.StatusEarlyHints),
		OnlyInformational(http.StatusProcessing),
		UnknownCoding(rules),
	}
}
