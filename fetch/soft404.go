package fetch

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
)

// maxErrorPage bounds how much of an error page is read for evidence.
const maxErrorPage = 64 << 10

// isSoft404 reports whether a 5xx is a server's way to say that there is no such file (seed 000,
// "Misconfigured 5xx Errors"). It takes two proofs, because a wrong yes permits everything: the
// page says so in words, and a path that was made up this moment gets the same status with the same
// words.
//
// 502, 503 and 504 are never taken for it: they speak of a server that the answering one could not
// use, and what was "not found" then is that. Nor are 429 and 430, which are no 5xx.
//
// The probe asks for a path of an origin whose rules are unknown; it is the one request that
// Crawlgate makes so, and it asks for nothing that exists.
func (r *retrieval) isSoft404(ctx context.Context, resp *response) bool {
	switch resp.StatusCode {
	case http.StatusTooManyRequests, statusThrottled, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return false
	}
	page, _, fail := resp.text(maxErrorPage)
	if fail != nil {
		return false
	}
	resp.close() // so that the probe does not wait at the gate for it
	words := pageWords(page, r.at.Path)
	if !saysNotFound(words) {
		return false
	}

	madeUp := &url.URL{Scheme: r.at.Scheme, Host: r.at.Host, Path: "/" + strings.ToLower(rand.Text()) + ".txt"}
	probe, fail := r.get(ctx, madeUp)
	if fail != nil {
		return false
	}
	defer probe.close()
	if probe.StatusCode != resp.StatusCode {
		return false
	}
	page, _, fail = probe.text(maxErrorPage)
	if fail != nil {
		return false
	}
	others := pageWords(page, madeUp.Path)
	return saysNotFound(others) && alike(words, others)
}

// pageWords returns the words of a page that people see, in order and in lower case: what stands
// between tags, without scripts, styles and attributes, and without the path that was asked for.
func pageWords(page []byte, path string) []string {
	text := strings.ToLower(strings.ToValidUTF8(string(page), " "))
	if path = strings.ToLower(strings.Trim(path, "/")); path != "" {
		text = strings.ReplaceAll(text, path, " ")
	}
	var visible strings.Builder
	for {
		before, tag, found := strings.Cut(text, "<")
		visible.WriteString(before)
		visible.WriteByte(' ')
		if !found {
			break
		}
		text = afterTag(tag)
	}
	return strings.FieldsFunc(visible.String(), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
}

// afterTag returns what follows a tag, given from behind its "<"; of a script or style it skips the
// content as well.
func afterTag(tag string) string {
	for _, element := range []string{"script", "style"} {
		if strings.HasPrefix(tag, element) {
			_, rest, _ := strings.Cut(tag, "</"+element)
			tag = rest
			break
		}
	}
	_, rest, _ := strings.Cut(tag, ">")
	return rest
}

// notFoundPhrases are the ways in which error pages say that their path names nothing: words that
// follow one another with at most maxGap others between ("the page you asked for was not found").
// Languages as far as they were met.
var notFoundPhrases = [][]string{
	{"page", "not", "found"},
	{"file", "not", "found"},
	{"document", "not", "found"},
	{"resource", "not", "found"},
	{"url", "not", "found"},
	{"path", "not", "found"},
	{"route", "not", "found"},
	{"404", "not", "found"},
	{"page", "does", "not", "exist"},
	{"page", "doesn", "t", "exist"},
	{"page", "cannot", "be", "found"},
	{"page", "can", "t", "be", "found"},
	{"page", "could", "not", "be", "found"},
	{"page", "couldn", "t", "be", "found"},
	{"no", "such", "file"},
	{"no", "such", "page"},
	{"seite", "nicht", "gefunden"},
	{"page", "introuvable"},
	{"página", "no", "encontrada"},
	{"página", "não", "encontrada"},
	{"pagina", "non", "trovata"},
	{"pagina", "niet", "gevonden"},
	{"страница", "не", "найдена"},
}

// maxGap is how many other words a phrase may have between two of its own.
const maxGap = 6

// outageWords are what a page talks about when the server is in trouble: beside them "not found"
// means a host, a table, a template, a back end.
var outageWords = wordSet(strings.Fields(`
	backend class config configuration connect connection database dns domain down exception fatal gateway
	host hostname maintenance module mysql overload overloaded php sql sqlstate stack temporarily template
	tenant timeout trace traceback unavailable upstream warning`))

// saysNotFound reports whether a page says that there is nothing under its path, and nothing that
// speaks of an outage.
func saysNotFound(words []string) bool {
	if slices.ContainsFunc(words, func(word string) bool { return outageWords[word] }) {
		return false
	}
	if slices.Equal(words, []string{"not", "found"}) {
		return true
	}
	return slices.ContainsFunc(notFoundPhrases, func(phrase []string) bool { return hasPhrase(words, phrase) })
}

// hasPhrase reports whether the phrase occurs in words, each of its words being the nearest one
// after its predecessor.
func hasPhrase(words, phrase []string) bool {
	for i, word := range words {
		if word != phrase[0] {
			continue
		}
		rest := words[i+1:]
		found := true
		for _, next := range phrase[1:] {
			at := slices.Index(rest[:min(len(rest), maxGap+1)], next)
			if at < 0 {
				found = false
				break
			}
			rest = rest[at+1:]
		}
		if found {
			return true
		}
	}
	return false
}

// alike reports whether two pages are the same kind of page: at least four in five of the different
// words of both are common. What differs is a date, or the number of a request.
func alike(a, b []string) bool {
	inA, inB := wordSet(a), wordSet(b)
	common := 0
	for word := range inA {
		if inB[word] {
			common++
		}
	}
	all := len(inA) + len(inB) - common
	return all > 0 && common*5 >= all*4
}

func wordSet(words []string) map[string]bool {
	set := make(map[string]bool, len(words))
	for _, word := range words {
		set[word] = true
	}
	return set
}
