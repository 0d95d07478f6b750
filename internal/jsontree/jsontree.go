// Package jsontree reads JSON of a form that others choose: as trees of maps and lists, within bounds. Its errors quote
// nothing of what was read.
package jsontree

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"

	"feishu-relay/relay"
)

// MaxDepth is how deep JSON may be nested.
const MaxDepth = 32

// Errors of JSON that is not read.
var (
	ErrTooLarge  = errors.New("is too large")
	ErrTooDeep   = errors.New("is nested too deeply")
	ErrNotObject = errors.New("is not a JSON object")
)

// Parse decodes data, of at most limit bytes and MaxDepth levels, with its numbers as text.
func Parse(data []byte, limit int) (any, error) {
	if len(data) > limit {
		return nil, ErrTooLarge
	}
	if relay.Deeper(data, MaxDepth) {
		return nil, ErrTooDeep
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, WithoutText(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("has more than one JSON value")
	}
	return v, nil
}

// Object is [Parse] for an object, also one that is written as a JSON string, as Feishu's calls carry cards.
func Object(data []byte, limit int) (map[string]any, error) {
	v, err := Parse(data, limit)
	if err == nil {
		v, err = Unquoted(v, limit)
	}
	if err != nil {
		return nil, err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, ErrNotObject
	}
	return m, nil
}

// Unquoted is [Parse] of the text in v while v is a string.
func Unquoted(v any, limit int) (_ any, err error) {
	for text, quoted := v.(string); quoted && err == nil; text, quoted = v.(string) {
		v, err = Parse([]byte(text), limit)
	}
	return v, err
}

// WithoutText returns an error of package json without what it quotes.
func WithoutText(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("is not JSON (byte %d)", e.Offset)
	}
	return errors.New("is not JSON of the expected form")
}

// IsObject reports whether v is an object.
func IsObject(v any) bool { _, ok := v.(map[string]any); return ok }

// IsList reports whether v is a list.
func IsList(v any) bool { _, ok := v.([]any); return ok }

// IsText reports whether v is a string that is not empty.
func IsText(v any) bool { s, ok := v.(string); return ok && s != "" }

// Member returns a member of m that is an object; nil if it is not.
func Member(m map[string]any, name string) map[string]any {
	member, _ := m[name].(map[string]any)
	return member
}

// Objects yields the objects in v, which is a list or one object.
func Objects(v any) iter.Seq[map[string]any] {
	list, isList := v.([]any)
	if !isList {
		list = []any{v}
	}
	return func(yield func(map[string]any) bool) {
		for _, e := range list {
			if m, ok := e.(map[string]any); ok && !yield(m) {
				return
			}
		}
	}
}

// Field returns the first of m's named members that is a string and not empty.
func Field(m map[string]any, names ...string) string {
	for _, name := range names {
		if text, _ := m[name].(string); text != "" {
			return text
		}
	}
	return ""
}

// Localized returns one of the translations in m that are of the wanted form: Chinese, else English, or the
// first in order; nil if there is none.
func Localized(m map[string]any, wanted func(any) bool) any {
	for _, name := range slices.Concat([]string{"zh_cn", "en_us"}, slices.Sorted(maps.Keys(m))) {
		if wanted(m[name]) {
			return m[name]
		}
	}
	return nil
}
