package jsontree_test

import (
	"errors"
	"strings"
	"testing"

	"feishu-relay/internal/jsontree"
)

func TestObject(t *testing.T) {
	for text, want := range map[string]error{
		`{"a":1}`: nil, `"{\"a\":1}"`: nil, `"\"{}\""`: nil, `{"a":"` + strings.Repeat("x", 100) + `"}`: jsontree.ErrTooLarge,
		strings.Repeat("[", 33): jsontree.ErrTooDeep, `"` + strings.Repeat("[", 33) + `"`: jsontree.ErrTooDeep, `[]`: jsontree.ErrNotObject,
	} {
		if _, err := jsontree.Object([]byte(text), 100); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
	for _, text := range []string{``, `{"SECRET`, `{}{}`, `{"a":SECRET}`, `"SECRET"`} {
		if _, err := jsontree.Object([]byte(text), 100); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestLocalized(t *testing.T) {
	for want, m := range map[string]map[string]any{"中": {"zh_cn": "中", "en_us": "en", "a": "1"}, "en": {"en_us": "en", "a": "1"},
		"1": {"b": "2", "a": "1", "zh_cn": 7}} {
		if got := jsontree.Localized(m, jsontree.IsText); got != want {
			t.Errorf("%v: %v", m, got)
		}
	}
}
