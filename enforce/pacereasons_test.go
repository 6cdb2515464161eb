package enforce

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/crawlgate/crawlgate/pace"
)

// TestEveryPaceReasonIsAReason reads the reasons from the source of package pace, so that the test
// includes new ones.
func TestEveryPaceReasonIsAReason(t *testing.T) {
	t.Parallel()
	declared := stringConstants(t, filepath.Join("..", "pace", "reject.go"), "Reason")
	if len(declared) < 5 {
		t.Fatalf("found the reasons %q, want at least 5", declared)
	}
	for _, name := range declared {
		r := Decision{}.RefuseSlot(t.Context(), &pace.Refused{Reason: pace.Reason(name)}).Reason
		if !r.Valid() || r.Allows() || r.Failure() {
			t.Errorf("%q becomes the reason %q, want a refusal", name, r)
		}
	}
}

// stringConstants returns the values of the constants of a string type in a file.
func stringConstants(t *testing.T, file, typeName string) (values []string) {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if typ, ok := spec.Type.(*ast.Ident); !ok || typ.Name != typeName {
			return true
		}
		for _, v := range spec.Values {
			if literal, ok := v.(*ast.BasicLit); ok {
				value, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				values = append(values, value)
			}
		}
		return true
	})
	return values
}
