package adminapi_test

import (
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/evidence/sealer"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/internal/testgateway"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestAdminDocs checks that each route with all of its parameters and fields is documented, and
// nothing else.
func TestAdminDocs(t *testing.T) {
	t.Parallel()
	sections := testdocs.Sections(t, "admin-api.md")
	routes := map[string]bool{}
	for path, methods := range adminapi.Methods {
		for method := range methods {
			routes[method+" "+adminapi.Prefix+path] = true
		}
	}
	headings := map[string]bool{}
	for heading := range sections {
		headings[heading] = true
	}
	delete(headings, "Requests and errors")
	delete(headings, "Next")
	testdocs.Same(t, "route", routes, headings)

	documented := map[string]bool{}
	for _, section := range sections {
		maps.Copy(documented, testdocs.Named(section))
	}
	inCode := testdocs.SetOf("after", "contains", "host", "limit", "state", "agent", "as", "site", "url", "key", "from", "to", "origin", "sha256", "scope", "value")
	for _, answer := range []any{
		adminapi.OriginList{}, adminapi.OriginDetail{}, adminapi.TextDiff{}, adminapi.Explanation{}, adminapi.Purged{}, adminapi.Orders{}, adminapi.Agents{}, adminapi.OrderGiven{}, adminapi.OrderLifted{}, adminapi.Clocks{}, adminapi.Unblocked{}, adminapi.Gateways{}, adminapi.Refreshed{}, adminapi.Evidence{}, sealer.WitnessStatus{},
	} {
		testdocs.AddFields(inCode, reflect.TypeOf(answer), reflect.TypeFor[enforce.LogRecord](), reflect.TypeFor[enforce.Problem]())
	}
	testdocs.Same(t, "field", inCode, documented)
}

// TestAdminParameters checks that the parameters which the page lists are those that a route
// takes.
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
				t.Fatalf("%s %s: %d %s", method, path, a.Status, a.Body)
			}
			inCode := testdocs.SetOf(strings.Split(found[1], ", ")...)
			delete(inCode, "none")
			testdocs.Same(t, method+" "+path+": parameter", inCode, testdocs.Named(table))
		}
	}
}

// TestAdminExamples sends the examples of the table of endpoints. Each is answered with 200, or with an error of its row.
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
		t.Fatalf("%d rows of %d routes", len(rows), routes)
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
			t.Errorf("%s %s %s: %d %s", method, path, example, a.Status, a.Body)
		}
	}
}
