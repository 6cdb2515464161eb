package origin_test

import (
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/origin"
)

// ftpPaths are paths of ftp URLs with the name of the file to request (RFC 1738 section 3.2.2) or
// the reason for a refusal.
var ftpPaths = []struct{ path, file, refused string }{
	{"", "/", ""},
	{"/", "/", ""},
	{"/pub", "/pub", ""},
	{"/pub/", "/pub/", ""},
	{"/pub/a%20b.txt", "/pub/a b.txt", ""},
	{"/pub/a b.txt", "/pub/a b.txt", ""},
	{"/pub/%61", "/pub/a", ""},
	{"/pub/caf%C3%A9", "/pub/café", ""},
	{"/pub/caf%E9", "/pub/caf\xe9", ""},
	{"/pub/c++/a%2Bb", "/pub/c++/a+b", ""},
	{"/pub/100%25", "/pub/100%", ""},
	{"/pub/a%23b", "/pub/a#b", ""},
	{"/pub/*", "/pub/*", ""},
	{"/~user/.hidden", "/~user/.hidden", ""},
	{"/..a/...b", "/..a/...b", ""},
	{"/pub%2fa", "", "slash"},
	{"/%2Fetc/motd", "", "slash"},
	{"/pub%2F..%2Fprivate", "", "slash"},
	{"//private/s", "", "slash"},
	{"/pub//s", "", "slash"},
	{"//", "", "slash"},
	{"/pub/../private/s", "", "dot"},
	{"/pub/%2e%2E/private/s", "", "dot"},
	{"/./private/s", "", "dot"},
	{"/private/.", "", "dot"},
	{"/pub/..", "", "dot"},
	{"/pub/%c0%ae%c0%ae/private", "", "dot"},
	{"/pub%e0%80%afprivate", "", "slash"},
	{"/...", "", "dot"},
	{"/private./s", "", "dot"},
	{"/private%20/s", "", "space"},
	{"/private/s%20", "", "space"},
	{"/pub%5Cprivate", "", "slash"},
	{"/pub\\private", "", "slash"},
	{"/a%0d%0aDELE%20b", "", "byte"},
	{"/a%0A", "", "byte"},
	{"/a%0d", "", "byte"},
	{"/a%00b", "", "byte"},
	{"/a%09b", "", "byte"},
	{"/a%7Fb", "", "byte"},
	{"/pri%FF%F1vate", "", "byte"},
	{"/a%3Fb", "", "byte"},
	{"/a?b", "", "query"},
	{"/a?", "", "query"},
	{"/a;type=i", "", "type"},
	{"/a;type=d", "", "type"},
	{"/a;TYPE=A", "", "type"},
	{"/a%3Btype=i", "", "type"},
	{"/a;1", "", "type"},
	{"/" + strings.Repeat("a", 5000), "", "long"},
}

func TestRFC1738_3_2_2_Targets(t *testing.T) {
	t.Parallel()
	for _, tt := range ftpPaths {
		target, err := origin.NewTarget(mustURL(t, "ftp://example.com"+tt.path))
		if tt.refused != "" {
			checkRefused(t, target.Origin, err, "path", tt.refused)
			continue
		}
		if err != nil {
			t.Errorf("FTP target of %s: %v", tt.path, err)
			continue
		}
		if got := target.URL().Path; got != tt.file {
			t.Errorf("%s: file %q, want %q", tt.path, got, tt.file)
		}
	}
}

// FuzzFTPTarget checks that an accepted path cannot end a command and is not resolved to another
// name.
func FuzzFTPTarget(f *testing.F) {
	for _, tt := range ftpPaths {
		if len(tt.path) < 1000 {
			f.Add(tt.path)
		}
	}
	f.Fuzz(func(t *testing.T, rawPath string) {
		u, err := url.Parse("ftp://example.com/" + rawPath)
		if err != nil {
			return
		}
		target, err := origin.NewTarget(u)
		if err != nil {
			return
		}
		file := target.URL().Path
		if strings.ContainsAny(file, "\r\n\x00\\;?") || strings.IndexByte(file, 0xff) >= 0 {
			t.Errorf("path %q gives the file name %q with forbidden bytes", rawPath, file)
		}
		if trimmed := strings.TrimSuffix(file, "/"); trimmed != "" && path.Clean(trimmed) != trimmed {
			t.Errorf("path %q gives the file name %q, which a server resolves to %q", rawPath, file, path.Clean(trimmed))
		}
		if again, err := origin.NewTarget(target.URL()); err != nil || again != target {
			t.Errorf("%q: NewTarget(URL()) = %+v, %v, want %+v", rawPath, again, err, target)
		}
	})
}
