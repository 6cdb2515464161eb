package query

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"
)

// question is one line of the input. Fields that are absent or null are nil.
type question struct {
	id         json.RawMessage // as written
	robots     *string         // base64
	robotsFile *string
	agent      *string
	agents     []*string
	url        *string
}

// parse reads a question. With an error the question still has its id, if that came before the
// fault. It reads value by value: encoding/json alone would take fields twice and in any case of
// letters, and would not give the id of a line that is cut off.
func parse(line []byte) (q question, err error) {
	d := json.NewDecoder(bytes.NewReader(line))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return q, errors.New("not a JSON object")
	}
	for d.More() {
		if err := q.field(d); err != nil {
			return q, err
		}
	}
	if _, err := d.Token(); err != nil {
		return q, badJSON(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return q, errors.New("bad JSON: more than one value")
	}
	if !utf8.Valid(line) {
		return q, errors.New("bad JSON: not UTF-8")
	}
	return q, q.check()
}

// field reads the next field of a question.
func (q *question) field(d *json.Decoder) error {
	key, err := d.Token()
	if err != nil {
		return badJSON(err)
	}
	var given bool
	var value any
	kind := "a string"
	switch key {
	case "id":
		given, value = q.id != nil, &q.id
	case "robots":
		given, value = q.robots != nil, &q.robots
	case "robots_file":
		given, value = q.robotsFile != nil, &q.robotsFile
	case "agent":
		given, value = q.agent != nil, &q.agent
	case "agents":
		given, value, kind = q.agents != nil, &q.agents, "a list of strings"
	case "url":
		given, value = q.url != nil, &q.url
	default:
		return fmt.Errorf("%.40s: unknown field", key)
	}
	if given {
		return fmt.Errorf("%s: given twice", key)
	}
	err = d.Decode(value)
	if _, ok := errors.AsType[*json.UnmarshalTypeError](err); ok || slices.Contains(q.agents, nil) {
		return fmt.Errorf("%s: not %s", key, kind)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", key, badJSON(err))
	}
	if !utf8.Valid(q.id) {
		q.id = nil
		return errors.New("id: bad JSON: not UTF-8")
	}
	return nil
}

// badJSON says that a line is no JSON, and where it ends if it is cut off.
func badJSON(err error) error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("bad JSON: %w", err)
}

// check reports what is missing or given in two ways.
func (q *question) check() error {
	switch {
	case q.robots != nil && q.robotsFile != nil:
		return errors.New("both robots and robots_file")
	case q.robots == nil && q.robotsFile == nil:
		return errors.New("neither robots nor robots_file")
	case q.agent != nil && q.agents != nil:
		return errors.New("both agent and agents")
	case q.agent == nil && q.agents == nil:
		return errors.New("neither agent nor agents")
	case q.url == nil:
		return errors.New("no url")
	}
	return nil
}

// tokens returns the product tokens that the question is about.
func (q *question) tokens() []string {
	if q.agent != nil {
		return []string{*q.agent}
	}
	tokens := make([]string, len(q.agents))
	for i, a := range q.agents {
		tokens[i] = *a
	}
	return tokens
}
