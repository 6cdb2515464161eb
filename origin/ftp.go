package origin

import (
	"net/url"
	"strings"
)

// maxFTPName bounds the name of a file, in octets: as many as Linux takes, and no
// more than can be sent in one piece.
const maxFTPName = 4000

// checkFTP refuses the paths that an FTP server could take for another one. It gets
// decoded octets and resolves them, so the rules must see the name that it sees,
// whatever forms of a path they judge. Octets must not end the command that a path is
// sent in (CR, LF, NUL), nor be a command of Telnet (0xFF, RFC 959 section 3.1).
func checkFTP(path string, hasQuery bool) error {
	name, err := url.PathUnescape(path)
	switch {
	case err != nil:
		return refuse(PartPath, path, "has a broken escape")
	case hasQuery:
		return refuse(PartPath, path, "has a query, which ftp URLs do not have")
	case strings.Contains(name, ";"):
		return refuse(PartPath, path, "has a semicolon: ftp URLs with a type are not supported")
	case !isResolved(path):
		return refuse(PartPath, path, "has a dot segment, an empty one, or a slash in another spelling")
	case len(name) > maxFTPName:
		return refuse(PartPath, path, "is too long for FTP")
	case hasControl(name), strings.ContainsRune(name, '?'), strings.IndexByte(name, 0xff) >= 0:
		return refuse(PartPath, path, "has an octet that is not sent to FTP servers")
	}
	for segment := range strings.SplitSeq(name, "/") {
		if strings.TrimRight(segment, ". ") != segment { // Windows does without them
			return refuse(PartPath, path, "has a segment that ends in a dot or a space")
		}
	}
	return nil
}
