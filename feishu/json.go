package feishu

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strconv"
	"strings"

	"feishu-relay/relay"
)

// Bounds of what comes from outside.
const (
	// MaxAnswer is the most bytes an event or an answer of Feishu may have to be
	// read; a longer one is an error (and passes the gateway unread).
	MaxAnswer = 4 << 20
	// maxContent is the most bytes a message's content or a card may have to be
	// read. Feishu takes 150 KB of text and 30 KB of card (docs/feishu.md 6.3); a longer
	// one is shown by its type only.
	maxContent = 1 << 20
	// maxDepth is how deep JSON may be nested; deeper content is not read.
	maxDepth = 32
)

var (
	errTooLarge = errors.New("is too large")
	errTooDeep  = errors.New("is nested too deeply")
)

// tree decodes data, of at most limit bytes and maxDepth levels, with its
// numbers as text. Errors quote nothing of it.
func tree(data []byte, limit int) (any, error) {
	if len(data) > limit {
		return nil, errTooLarge
	}
	if relay.Deeper(data, maxDepth) {
		return nil, errTooDeep
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, withoutText(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, errors.New("has more than one JSON value")
	}
	return v, nil
}

// object is [tree] for a JSON object, also one written as a JSON string, as
// Feishu's calls carry cards, elements and settings.
func object(data []byte, limit int) (map[string]any, error) {
	v, err := unquoted(data, limit)
	if err != nil {
		return nil, err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, errNotObject
	}
	return m, nil
}

// unquoted is [tree] of data, or of the text in it while it is a JSON string.
func unquoted(data []byte, limit int) (any, error) {
	v, err := tree(data, limit)
	if err != nil {
		return nil, err
	}
	return unquotedValue(v)
}

func unquotedValue(v any) (_ any, err error) {
	for text, quoted := v.(string); quoted && err == nil; text, quoted = v.(string) {
		v, err = tree([]byte(text), maxContent)
	}
	return v, err
}

// lenient decodes the JSON object data into v and omits the fields of
// another type than expected.
func lenient(data []byte, v any) error {
	if len(data) > MaxAnswer {
		return errTooLarge
	}
	if relay.Deeper(data, maxDepth) {
		return errTooDeep
	}
	err := json.Unmarshal(data, v)
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && e.Field != "" {
		return nil
	}
	return withoutText(err)
}

// withoutText returns an error of package json without what it quotes.
func withoutText(err error) error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("is not JSON (byte %d)", e.Offset)
	}
	return errors.New("is not JSON of the expected form")
}

// localized returns one of the translations in m.
func localized(m map[string]any, wanted func(any) bool) any {
	for _, locale := range []string{"zh_cn", "en_us"} {
		if wanted(m[locale]) {
			return m[locale]
		}
	}
	var first string
	for locale, v := range m {
		if wanted(v) && (first == "" || locale < first) {
			first = locale
		}
	}
	return m[first]
}

func isObject(v any) bool { _, ok := v.(map[string]any); return ok }
func isList(v any) bool   { _, ok := v.([]any); return ok }

func isText(v any) bool { s, ok := v.(string); return ok && s != "" }

// field returns the first of m's named fields that is a non-empty string.
func field(m map[string]any, names ...string) string {
	i := slices.IndexFunc(names, func(name string) bool { return isText(m[name]) })
	if i < 0 {
		return ""
	}
	return m[names[i]].(string)
}

// compact encodes v as one line of JSON in the form of JSON.stringify, without needless
// escapes: Node's SDK verifies signatures over its own encoding
// (docs/feishu.md 2.3).
func compact(v any) []byte {
	line, err := relay.Marshal(v)
	if err != nil {
		panic(err) // a programming error: strings, numbers, and structs and maps of them always encode
	}
	return rawSeparators(line)
}

// rawSeparators undoes the two escapes that encoding/json always makes.
func rawSeparators(data []byte) []byte {
	if !bytes.Contains(data, []byte(`\u202`)) {
		return data
	}
	var b strings.Builder
	for i := 0; i < len(data); i++ {
		rest := data[i:]
		switch {
		case data[i] != '\\':
			b.WriteByte(data[i])
			continue
		case bytes.HasPrefix(rest, []byte(`\u2028`)):
			b.WriteRune('\u2028')
			i += 5
		case bytes.HasPrefix(rest, []byte(`\u2029`)):
			b.WriteRune('\u2029')
			i += 5
		default:
			b.Write(rest[:2])
			i++
		}
	}
	return []byte(b.String())
}

// jsonSpace is the white space of JSON.
const jsonSpace = " \t\r\n"

// span is where a JSON value is.
type span struct{ from, to int }

// values yields the values of the JSON object or list at a place in data, which is valid JSON, with the keys of an
// object.
func values(data []byte, at span) iter.Seq2[string, span] {
	return func(yield func(string, span) bool) {
		d := json.NewDecoder(bytes.NewReader(data[at.from:at.to]))
		open, _ := d.Token()
		if open != json.Delim('{') && open != json.Delim('[') {
			return
		}
		for d.More() {
			key := ""
			if open == json.Delim('{') {
				t, _ := d.Token()
				key, _ = t.(string)
			}
			var value json.RawMessage
			if d.Decode(&value) != nil {
				return
			}
			to := at.from + int(d.InputOffset())
			if !yield(key, span{to - len(value), to}) {
				return
			}
		}
	}
}

var errNotObject = errors.New("is not a JSON object")

// Member returns where the value of a member of the JSON object data is: data[from:to], empty where it
// is missing. Of several the last counts, as for decoders.
func Member(data []byte, key string) (from, to int, err error) {
	if !json.Valid(data) || bytes.TrimLeft(data, jsonSpace)[0] != '{' {
		return 0, 0, errNotObject
	}
	for name, at := range values(data, span{0, len(data)}) {
		if name == key {
			from, to = at.from, at.to
		}
	}
	return from, to, nil
}

// SetMember replaces or adds a member of the JSON object data. Nothing else changes.
func SetMember(data []byte, key string, value []byte) ([]byte, error) {
	from, to, err := Member(data, key)
	if err != nil {
		return nil, err
	}
	if from < to {
		return slices.Concat(data[:from], value, data[to:]), nil
	}
	end := bytes.LastIndexByte(data, '}')
	head := bytes.TrimRight(data[:end], jsonSpace)
	comma := []byte(",")
	if bytes.HasSuffix(head, []byte("{")) {
		comma = nil
	}
	return slices.Concat(head, comma, strconv.AppendQuote(nil, key), []byte(":"), value, data[end:]), nil
}
