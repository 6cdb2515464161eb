package query

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// question is one line of the input.
type question struct {
	id         []byte // as written; nil when it is not there
	robots     []byte // base64; good until the next line is read
	robotsFile string
	agents     []string
	url        string
	has        uint8 // bit set of the fields that are there
}

// The fields of a question.
const (
	fieldID = iota
	fieldRobots
	fieldRobotsFile
	fieldAgent
	fieldAgents
	fieldURL
)

var fields = map[string]int{
	"id": fieldID, "robots": fieldRobots, "robots_file": fieldRobotsFile,
	"agent": fieldAgent, "agents": fieldAgents, "url": fieldURL,
}

// parse reads a question. With an error the question still has its id, if that came before the fault.
//
// encoding/json goes over every octet three times; the files inside questions make that the greater part of a run.
// So only what is not plain is left to it.
func parse(line []byte) (question, error) {
	var q question
	p := reader{rest: line}
	if !p.take('{') {
		return q, errors.New("not a JSON object")
	}
	for first := true; !p.take('}'); first = false {
		if !first && !p.take(',') {
			return q, errors.New("bad JSON: no comma or brace behind a value")
		}
		name, err := p.string()
		if err != nil {
			return q, fmt.Errorf("bad JSON: field name: %w", err)
		}
		if !p.take(':') {
			return q, fmt.Errorf("bad JSON: no colon behind %.40q", name)
		}
		if err := q.field(&p, name); err != nil {
			return q, fmt.Errorf("%.40s: %w", name, err)
		}
	}
	if p.skipSpace(); len(p.rest) > 0 {
		return q, errors.New("bad JSON: more than one value")
	}
	return q, q.check()
}

// field reads the value of a field.
func (q *question) field(p *reader, name string) error {
	f, ok := fields[name]
	if !ok {
		return errors.New("unknown field")
	}
	if q.has&(1<<f) != 0 {
		return errors.New("given twice")
	}
	if f != fieldID && p.takeNull() {
		return nil // as if absent
	}
	q.has |= 1 << f
	var err error
	switch f {
	case fieldID:
		q.id, err = p.value()
	case fieldRobots:
		q.robots, err = p.text()
	case fieldRobotsFile:
		q.robotsFile, err = p.string()
	case fieldAgent:
		q.agents = make([]string, 1)
		q.agents[0], err = p.string()
	case fieldAgents:
		q.agents, err = p.strings()
	case fieldURL:
		q.url, err = p.string()
	}
	return err
}

// check reports what is missing or given in two ways.
func (q *question) check() error {
	has := func(f int) bool { return q.has&(1<<f) != 0 }
	switch {
	case has(fieldRobots) && has(fieldRobotsFile):
		return errors.New("both robots and robots_file")
	case !has(fieldRobots) && !has(fieldRobotsFile):
		return errors.New("neither robots nor robots_file")
	case has(fieldAgent) && has(fieldAgents):
		return errors.New("both agent and agents")
	case !has(fieldAgent) && !has(fieldAgents):
		return errors.New("neither agent nor agents")
	case !has(fieldURL):
		return errors.New("no url")
	}
	return nil
}

// reader reads JSON from the front.
type reader struct{ rest []byte }

func (p *reader) skipSpace() {
	for len(p.rest) > 0 && (p.rest[0] == ' ' || p.rest[0] == '\t' || p.rest[0] == '\n' || p.rest[0] == '\r') {
		p.rest = p.rest[1:]
	}
}

// take reads one octet, if it is the next.
func (p *reader) take(c byte) bool {
	p.skipSpace()
	if len(p.rest) == 0 || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

func (p *reader) takeNull() bool {
	p.skipSpace()
	rest, ok := bytes.CutPrefix(p.rest, []byte("null"))
	if ok {
		p.rest = rest
	}
	return ok
}

// text reads a string. Its octets may be those of the line.
func (p *reader) text() ([]byte, error) {
	p.skipSpace()
	if len(p.rest) == 0 || p.rest[0] != '"' {
		return nil, errors.New("not a string")
	}
	end := bytes.IndexByte(p.rest[1:], '"') + 1
	if end > 0 && isPlain(p.rest[1:end]) {
		text := p.rest[1:end]
		p.rest = p.rest[end+1:]
		return text, nil
	}
	raw, err := p.value()
	if err != nil {
		return nil, err
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return nil, fmt.Errorf("bad JSON: %w", err)
	}
	return []byte(s), nil
}

func (p *reader) string() (string, error) {
	text, err := p.text()
	return string(text), err
}

// strings reads a list of strings.
func (p *reader) strings() ([]string, error) {
	if !p.take('[') {
		return nil, errors.New("not a list of strings")
	}
	list := []string{}
	for !p.take(']') {
		if len(list) > 0 && !p.take(',') {
			return nil, errors.New("bad JSON: no comma or bracket behind a value")
		}
		s, err := p.string()
		if err != nil {
			return nil, fmt.Errorf("not a list of strings: %w", err)
		}
		list = append(list, s)
	}
	return list, nil
}

// isPlain reports whether the inside of a JSON string stands for itself.
func isPlain(b []byte) bool {
	if bytes.IndexByte(b, '\\') >= 0 || !utf8.Valid(b) {
		return false
	}
	for _, c := range b {
		if c < ' ' {
			return false
		}
	}
	return true
}

// value reads any value and returns it as written.
func (p *reader) value() ([]byte, error) {
	p.skipSpace()
	d := json.NewDecoder(bytes.NewReader(p.rest))
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil {
		return nil, fmt.Errorf("bad JSON: %w", err)
	}
	if !utf8.Valid(raw) {
		return nil, errors.New("bad JSON: not UTF-8")
	}
	p.rest = p.rest[d.InputOffset():]
	return raw, nil
}

// appendString appends a JSON string. Octets that are not UTF-8 become the replacement character.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return appendQuoted(b, s)
		}
	}
	b = append(append(b, '"'), s...)
	return append(b, '"')
}

func appendQuoted(b []byte, s string) []byte {
	buf := bytes.NewBuffer(b)
	e := json.NewEncoder(buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		return append(b, `""`...) // cannot happen: a string can always be encoded
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
}
