package fetch

import (
	"bytes"
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/html"
)

// maxErrorPage bounds how much of an error page is read for evidence.
const maxErrorPage = 64 << 10

// isSoft404 reports whether a 5xx is a server's way to say that there is no such file (Google's
// specification treats such answers as 404). It needs two proofs, because a wrong yes permits
// everything: the page says that the requested path was not found, and a path made up at this
// moment gets the same status and the same words. A soft 404 permits nothing if rules are known:
// see [Policy.Next].
//
// Only 500 and 501 count. The other statuses indicate load, or another server that the answering
// one could not use; a "not found" there refers to that server.
//
// The probe requests a path of an origin whose rules are unknown. It is the only request that
// Crawlgate sends without rules, and its path does not exist.
func (r *retrieval) isSoft404(ctx context.Context, resp *response) bool {
	if resp.StatusCode != http.StatusInternalServerError && resp.StatusCode != http.StatusNotImplemented {
		return false
	}
	body, _, fail := resp.text(maxErrorPage)
	if fail != nil {
		return false
	}
	resp.close() // so that the probe does not wait at the gate for it
	page := readErrorPage(body, r.at)
	if !page.saysNotFound() {
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
	if body, _, fail = probe.text(maxErrorPage); fail != nil {
		return false
	}
	other := readErrorPage(body, madeUp)
	return other.saysNotFound() && alike(words(page.text), words(other.text))
}

// errorPage is the text of an error page. The requested URL is replaced by the word "page".
type errorPage struct {
	title, heading string // the first of each
	text           string // the visible text, including title and heading
	comments       string
}

const (
	inlineTags  = " a b code em font i kbd small span strong tt "
	headingTags = " h1 h2 h3 h4 h5 h6 "
	unseenTags  = " script style template noscript iframe textarea "
)

// readErrorPage reads HTML, or plain text, which is HTML without tags.
func readErrorPage(body []byte, at *url.URL) errorPage {
	named := []string{at.String(), " page ", at.Path, " page "}
	if path := strings.Trim(at.Path, "/"); len(path) > 3 { // a shorter one may be part of words
		named = append(named, path, " page ")
	}
	name := strings.NewReplacer(named...)
	var title, heading, text, comments strings.Builder
	before, open := "end", false // the tag before a text, and whether it is in the first heading
	for z := html.NewTokenizer(bytes.NewReader(body)); ; {
		kind := z.Next()
		token := z.Token()
		tag := " " + token.Data + " "
		switch kind {
		case html.ErrorToken:
			return errorPage{title.String(), heading.String(), text.String(), comments.String()}
		case html.CommentToken:
			comments.WriteString(token.Data + "\n")
		case html.TextToken:
			if strings.Contains(unseenTags, before) {
				continue
			}
			data := name.Replace(token.Data)
			text.WriteString(data)
			if before == " title " && title.Len() == 0 {
				title.WriteString(data)
			}
			if open {
				heading.WriteString(data)
			}
		case html.StartTagToken, html.EndTagToken, html.SelfClosingTagToken:
			text.WriteByte(' ')
			if before = tag; kind != html.StartTagToken {
				before = "end"
			}
			if !strings.Contains(inlineTags, tag) {
				text.WriteByte('\n')
				open = before != "end" && heading.Len() == 0 && strings.Contains(headingTags, tag)
			}
		case html.DoctypeToken:
		}
	}
}

// fewWords is the most words of a page that needs no headline.
const fewWords = 24

// saysNotFound reports whether a sentence of the title, the first heading or a text of a few words
// says that there is no such page, and nothing indicates a fault of the server itself.
func (p errorPage) saysNotFound() bool {
	headlines := p.title + "\n" + p.heading
	if short := len(words(p.text)) <= fewWords; short {
		headlines += "\n" + p.text
	}
	if outage.MatchString(p.text) || outage.MatchString(p.comments) || serverStatus.MatchString(headlines) {
		return false
	}
	for sentence := range strings.FieldsFuncSeq(headlines, func(r rune) bool { return strings.ContainsRune("\n.:;,!?|/·•–—-()[]{}«»<>", r) }) {
		sentence = strings.Join(words(apostrophes.Replace(sentence)), " ")
		bare := sentence == "not found" && (strings.Contains(headlines, "404") || p.title+p.heading != "")
		if bare || notFound.MatchString(sentence) {
			return true
		}
	}
	return false
}

var apostrophes = strings.NewReplacer("'", "", "’", "", "ʼ", "")

// notFound matches a whole sentence that says that the requested page does not exist. Its subject
// must be that page: a file, a route or a template that was not found may be the server's own. It
// knows the languages that we have met so far.
var notFound = regexp.MustCompile(`^(?:(?:error|http|status|code|404|so|oops|ooops|whoops|sorry|but|uh|oh|no) )*(?:` + strings.Join([]string{
	`404 not found`, `not found 404`, `no such page`,
	`(?:(?:the|this|that|your|requested|web) )*(?:page|webpage|url|(?:the|this|that|your) (?:requested |web )?(?:document|address)|the requested (?:file|resource|path))(?: (?:page|url|address|document|` +
		`http|https|that|which|you|ve|have|are|were|re|youre|youve|asked|requested|looking|trying|tried|searching|entered|typed|wanted|for|to|at|of|access|reach|view|visit|open|see))*` +
		` (?:(?:was|is|has|were)? ?(?:not|wasnt|isnt|never) (?:been )?(?:found|located)|(?:cannot|can not|cant|could not|couldnt) be (?:found|located)|` +
		`(?:does not|doesnt|did not|do not) (?:seem to )?exist|no longer exists|(?:does not|doesnt) exist or [a-z ]+)`,
	`(?:we )?(?:cannot|can not|cant|could not|couldnt) find (?:the|that|this|your) (?:requested )?(?:page|url|document)(?: (?:that|you|are|were|re|youre|looking|for|requested|asked))*`,
	`(?:die |diese |gesuchte |angeforderte )*seite (?:wurde |konnte )?(?:leider )?nicht gefunden(?: werden)?`, `(?:la |cette )?page (?:demandée )?(?:est )?introuvable`,
	`(?:la )?página (?:no|não) (?:fue |foi )?encontrada`, `(?:la )?pagina (?:non|niet) (?:è stata )?(?:trovata|gevonden)`, `страница не найдена`,
}, `|`) + `)(?: (?:on|in|at|this|the|our|server|site|website|web|here|anymore|any|more|error|404|page|sorry))*$`)

// serverStatus is a status that blames the server.
var serverStatus = regexp.MustCompile(`\b5[0-5]\d\b`)

// outage matches words on the page of a server in trouble. Next to them, "not found" refers to a
// host, a table, a template or a back end.
var outage = regexp.MustCompile(`(?i:\b(?:` + strings.Join(strings.Fields(`
	aborted backend backtrace bucket class cluster config configuration connect connection container controller database
	debug denied deployment directory dns domain down e(?:access?|conn[a-z]+|exist|mfile|noent|notfound|perm|timedout) exception failed
	failure fatal gateway goroutine guru host hostname ingress instance invalid line\s\d+ maintenance meditation module mysql namespace
	nil null object\sreference outage overload overloaded panic php pod postgres[a-z]* query redis runtime schema segmentation
	server\serror sql sqlstate ssl stack stacktrace syntax table temporarily template tenant timed\sout timeout trace traceback
	unavailable uncaught undefined unexpected unhandled upstream warning wrong`), `|`) + `)\b` +
	`|\bat [\w.$<>]+ ?\(|:\d+:\d+|\b[a-z]:\\|(?:^|[\s'"(=:])/(?:app|var|usr|home|srv|opt|etc|mnt|data|www|code|root|tmp|workspace|src)/` +
	`|\w\.(?:go|py|rb|php\d?|phtml|[cm]?[jt]sx?|java|cs|cs?html|aspx?|ejs|erb|haml|twig|pug|hbs|mustache|blade|vue|pl|lua|exs?|kt|scala|tmpl|tpl|jsp|dll|ya?ml|toml|json)\b` +
	`)|[a-z](?:Exception|Error)\b`)

// words returns the words of a text, in lower case.
func words(text string) []string {
	return strings.FieldsFunc(strings.ToLower(strings.ToValidUTF8(text, " ")), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
}

// alike reports whether two pages are the same kind of page: at least four in five of the different
// words of both are common. What differs is a date, or the number of a request.
func alike(a, b []string) bool {
	all := different(slices.Concat(a, b))
	common := different(a) + different(b) - all
	return all > 0 && common*5 >= all*4
}

// different returns how many different words there are.
func different(words []string) int {
	set := make(map[string]bool, len(words))
	for _, word := range words {
		set[word] = true
	}
	return len(set)
}
