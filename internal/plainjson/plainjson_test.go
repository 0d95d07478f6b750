package plainjson

import (
	"bytes"
	"encoding/json"
	"testing"
)

// FuzzString checks that a string is written as encoding/json writes it, and read as it reads it.
func FuzzString(f *testing.F) {
	for _, s := range []string{"", "plain", "请看", "a\"b\\c/", "\b\f\n\r\t\x00\x1f\x7f", "<at>&", "\u2028\u2029\u202a", "\xff\xe2\x80",
		"\\u2028", "😀\ufffd"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var b bytes.Buffer
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(text); err != nil {
			t.Fatal(err)
		}
		if got, want := AppendString(nil, text), bytes.TrimSuffix(b.Bytes(), []byte("\n")); !bytes.Equal(got, want) {
			t.Errorf("written: got %q, want %q", got, want)
		}
		for _, line := range []string{text, `"` + text + `"`, string(AppendString(nil, text))} {
			s := Scan([]byte(line))
			got, ok := s.Text()
			if !ok || !s.Done() {
				continue
			}
			var want string
			if err := json.Unmarshal([]byte(line), &want); err != nil {
				t.Fatalf("%q is accepted: %v", line, err)
			}
			if s, ok := got.String(); !ok || s != want {
				t.Errorf("%q: got %q, %v, want %q", line, s, ok, want)
			}
		}
	})
}

func FuzzScalar(f *testing.F) {
	for _, s := range []string{`"a"`, "0", "17", "017", "-1", "1.5", "true", "false", "null", "nul", "[]", "{}", " 1", "1 ", "truefalse",
		"123456789012345", "1234567890123456"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		if IsScalar(value) && !json.Valid(value) {
			t.Errorf("%q is accepted", value)
		}
	})
}

func TestKeysAndNumbers(t *testing.T) {
	s := Scan([]byte(`{"ts":1700000000000,"n":0}`))
	if !s.Byte('{') {
		t.Fatal("no object")
	}
	if key, ok := s.Key(); !ok || string(key) != "ts" {
		t.Fatalf("got %q, %v", key, ok)
	}
	if n, ok := s.Millis(); !ok || n != 1700000000000 {
		t.Fatalf("got %d, %v", n, ok)
	}
	for _, refused := range []string{"", "x", "-5", "007", "1700000000"} {
		s := Scan([]byte(refused))
		if n, ok := s.Millis(); ok {
			t.Errorf("%q: got %d", refused, n)
		}
	}
}
