package adminapi_test

import (
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/internal/testgateway"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

const fieldsHead = `# Fields of the admin API

You look up what a field of an answer means. This page is generated from the code: each text is the doc comment of a Go
type. [Admin API](admin-api.md) lists the endpoints with their parameters.

A field marked "always" is in every answer. Others are left out if they are empty. Times are RFC 3339 in UTC.
`

// adminAnswers are the types of answers by route.
var adminAnswers = []struct {
	routes string
	typ    reflect.Type
}{
	{"GET /robots/agents", answerOf(adminapi.ListAgents)},
	{"GET /robots/origins", answerOf(adminapi.ListOrigins)},
	{"GET /robots/origin", answerOf(adminapi.ShowOrigin)},
	{"GET /robots/body", nil}, // text
	{"GET /robots/diff", answerOf(adminapi.CompareTexts)},
	{"GET /robots/explain", answerOf(adminapi.Explain)},
	{"GET /robots/deny", reflect.TypeFor[adminapi.Orders]()},
	{"POST /robots/deny, POST /robots/allow", answerOf(adminapi.Deny)},
	{"DELETE /robots/deny", answerOf(adminapi.Undeny)},
	{"POST /robots/purge", answerOf(adminapi.Purge)},
	{"POST /robots/refresh", answerOf(adminapi.Refresh)},
	{"GET /robots/gateways", answerOf(adminapi.ListGateways)},
	{"GET /robots/clocks", answerOf(adminapi.ListClocks)},
	{"POST /robots/unblock", answerOf(adminapi.UnblockHost)},
	{"GET /robots/evidence", reflect.TypeFor[adminapi.Evidence]()},
}

func answerOf(function any) reflect.Type { return reflect.TypeOf(function).Out(0) }

// TestAdminDocs checks that docs/admin-api.md has exactly one section per route. It makes
// docs/admin-api-fields.md from the types of the answers: with -update it writes the page.
func TestAdminDocs(t *testing.T) {
	t.Parallel()
	routes := map[string]bool{}
	for path, methods := range adminapi.Methods {
		for method := range methods {
			routes[method+" "+adminapi.Prefix+path] = true
		}
	}
	headings := map[string]bool{}
	for heading := range testdocs.Sections(t, "admin-api.md") {
		headings[heading] = true
	}
	delete(headings, "Requests and errors")
	delete(headings, "Next")
	testdocs.Same(t, "route", routes, headings)

	page := testdocs.Page{T: t, Elsewhere: []reflect.Type{reflect.TypeFor[enforce.LogRecord](), reflect.TypeFor[enforce.Problem]()}}
	page.WriteString(fieldsHead)
	described := map[string]bool{}
	for _, answer := range adminAnswers {
		for route := range strings.SplitSeq(answer.routes, ", ") {
			described[route] = true
		}
		if answer.typ != nil {
			page.Object("## `"+strings.ReplaceAll(answer.routes, ", ", "`, `")+"`", answer.typ)
		}
	}
	testdocs.Same(t, "answer of", routes, described)
	page.WriteString("\n## Objects within answers\n")
	page.Inner()
	page.WriteString("\n## Next\n\n* [Admin API](admin-api.md): the endpoints\n* [Fields of the access log](access-log-fields.md)\n")
	testdocs.Generated(t, "admin-api-fields.md", page.String())
}

// TestAdminParameters checks that the page lists exactly the parameters that a route accepts.
func TestAdminParameters(t *testing.T) {
	g := testgateway.New(t, "", "")
	sections := testdocs.Sections(t, "admin-api.md")
	takes := regexp.MustCompile(`want ([a-z0-9, ]+)`)
	for path, methods := range adminapi.Methods {
		for method := range methods {
			if method == http.MethodPost {
				continue
			}
			section := sections[method+" "+adminapi.Prefix+path]
			_, table, _ := strings.Cut(section, "| parameter | meaning |")
			table, _, _ = strings.Cut(table, "\n\n")
			a := g.Admin(method, adminapi.Prefix+path+"?nonsense=1", nil)
			found := takes.FindStringSubmatch(string(a.Body))
			if a.Status != http.StatusBadRequest || found == nil {
				t.Fatalf("%s %s with an unknown parameter: got status %d, %s", method, path, a.Status, a.Body)
			}
			inCode := testdocs.SetOf(strings.Split(found[1], ", ")...)
			delete(inCode, "none")
			testdocs.Same(t, method+" "+path+": parameter", inCode, testdocs.Named(table))
		}
	}
}

// TestAdminExamples sends the examples of the table of endpoints. Each answer must have status 200
// or an error of its row.
func TestAdminExamples(t *testing.T) {
	g := testgateway.New(t, "", "")
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{}).Origin().String()
	here := strings.NewReplacer("https://example.com", site, "2026-12-31", time.Now().AddDate(0, 0, 1).Format(time.DateOnly))
	rows := regexp.MustCompile("(?m)^\\| \\[`(\\w+) (/robots/\\w+)`\\]\\S+ \\| [^|]+ \\| ?(?:`([^`]+)`)? \\|(.*) \\|$").FindAllStringSubmatch(testdocs.Text(t, "admin-api.md"), -1)
	routes := 0
	for _, methods := range adminapi.Methods {
		routes += len(methods)
	}
	if len(rows) != routes {
		t.Fatalf("the table has %d rows for %d routes", len(rows), routes)
	}
	for _, row := range rows {
		method, path, example, errors := row[1], row[2], here.Replace(row[3]), row[4]
		var body any
		switch {
		case method == http.MethodPost:
			body = example
		case example != "":
			path = example
		}
		a := g.Admin(method, path, body)
		if a.Status != http.StatusOK && !strings.Contains(errors, strconv.Itoa(a.Status)) || a.Status == http.StatusBadRequest {
			t.Errorf("%s %s %s: got status %d, %s, which is not in its row", method, path, example, a.Status, a.Body)
		}
	}
}
