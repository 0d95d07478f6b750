package sidecar_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// document is decoded JSON.
type document = map[string]any

func decodeDocument(data []byte) (document, error) {
	dec := json.NewDecoder(strings.NewReader(string(data)))
	dec.UseNumber()
	var doc document
	return doc, dec.Decode(&doc)
}

// find returns what stands at a dotted path; elements of a list go by their
// number.
func find(doc any, path string) (any, bool) {
	for name := range strings.SplitSeq(path, ".") {
		switch in := doc.(type) {
		case document:
			v, ok := in[name]
			if !ok {
				return nil, false
			}
			doc = v
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(in) {
				return nil, false
			}
			doc = in[i]
		default:
			return nil, false
		}
	}
	return doc, true
}

// textAt is find as text: strings as they are, the rest as JSON, and "-" for
// what is not there.
func textAt(doc any, path string) string {
	v, ok := find(doc, path)
	if !ok {
		return "-"
	}
	if text, ok := v.(string); ok {
		return text
	}
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // it was JSON
	}
	return string(data)
}

// millisAt is the number at a path, 0 where there is none.
func millisAt(doc any, path string) int64 {
	n, err := strconv.ParseInt(textAt(doc, path), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// check proves conditions on a document: path=text, path!=text, path~text for a
// part of the text, path!~text for none; "-" stands for what is missing. A word alone is a
// flag that is set, !word one that is not. Each path is looked for below the
// roots in turn.
func (s *story) check(doc document, conditions []string, roots ...string) error {
	for _, c := range conditions {
		path, op, want := splitCondition(c)
		want, err := s.value(want)
		if err != nil {
			return err
		}
		got := textAt(doc, path)
		for _, root := range roots {
			if got == "-" {
				got = textAt(doc, root+"."+path)
			}
		}
		ok := got == want
		switch op {
		case "!=":
			ok = !ok
		case "~", "!~":
			ok = strings.Contains(got, want) == (op == "~")
		}
		if !ok {
			return fmt.Errorf("got %s=%.300q, want %s%s%.300q", path, got, path, op, want)
		}
	}
	return nil
}

func splitCondition(c string) (path, op, want string) {
	i := strings.IndexAny(c, "=~!")
	switch {
	case i < 0:
		return c, "=", "true"
	case i == 0:
		return c[1:], "=", "false"
	case strings.HasPrefix(c[i:], "!=") || strings.HasPrefix(c[i:], "!~"):
		return c[:i], c[i : i+2], c[i+2:]
	}
	return c[:i], c[i : i+1], c[i+1:]
}
