package robotstxt

// Warning is a line that was ignored or repaired, or that does something else than its author may think.
type Warning struct {
	Line    int    // line number, from 1; 0 for the file as a whole
	Code    string // what, one of the Lint constants
	Message string // why, for a person
}

// Lint reports what is wrong with a robots.txt.
func Lint(data []byte) []Warning { return nil }
