// Package repeated finds fields that a JSON object has twice. Package json keeps the last value,
// ignores the case of names, and merges objects, so the text can mean something else to its author,
// or to another program.
package repeated

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
)

// Field returns an error that names a field that an object has twice, at any depth of a valid JSON
// text. Names that differ in case only are the same.
func Field(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // of any size
	return next(d)
}

// next reads a value.
func next(d *json.Decoder) error {
	begin, err := d.Token()
	if _, nested := begin.(json.Delim); err != nil || !nested {
		return err
	}
	seen := make(map[string]bool)
	for d.More() {
		if begin == json.Delim('{') {
			token, err := d.Token()
			if err != nil {
				return err
			}
			name, _ := token.(string)
			folded := strings.Map(fold, name)
			if seen[folded] {
				return fmt.Errorf("field %.40q is given twice", name)
			}
			seen[folded] = true
		}
		if err := next(d); err != nil {
			return err
		}
	}
	_, err = d.Token() // the end
	return err
}

// fold returns the same rune for all cases of a letter, as [strings.EqualFold] compares them.
func fold(r rune) rune {
	for {
		other := unicode.SimpleFold(r)
		if other <= r { // they are in a circle
			return other
		}
		r = other
	}
}
