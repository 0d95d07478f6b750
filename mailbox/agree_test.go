package mailbox_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"feishu-relay/mailbox"
)

// TestWireForms reads what was read before, and writes and signs it with the same bytes. The
// file was written from messages of all makes and messages with mistakes.
func TestWireForms(t *testing.T) {
	t.Parallel()
	f, err := os.Open("testdata/wire.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	n := 0
	for ; lines.Scan(); n++ {
		var was struct {
			Raw, Line, Sig, Field string
			Draft                 bool
		}
		if err := json.Unmarshal(lines.Bytes(), &was); err != nil {
			t.Fatal(err)
		}
		decode := mailbox.Decode
		if was.Draft {
			decode = mailbox.DecodeDraft
		}
		e, err := decode([]byte(was.Raw))
		if no, ok := errors.AsType[*mailbox.Error](err); was.Line == "" && (!ok || no.Field != was.Field) {
			t.Errorf("%s: got %v, want a refusal of %q", was.Raw, err, was.Field)
		}
		if was.Line == "" {
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", was.Raw, err)
			continue
		}
		if line, err := mailbox.Encode(e); string(line) != was.Line {
			t.Errorf("%s is written as\n%s, %v\nwas\n%s", was.Raw, line, err, was.Line)
		}
		signed, err := signing.Encode(e)
		var got struct{ Sig string }
		if was.Sig != "" && (err != nil || json.Unmarshal(signed, &got) != nil || got.Sig != was.Sig) {
			t.Errorf("%s is signed %q, %v, was %q", was.Raw, got.Sig, err, was.Sig)
		}
	}
	if err := lines.Err(); err != nil || n < 200 {
		t.Errorf("%d lines: %v", n, err)
	}
}

// otherValues are tried in each place of an envelope and of a draft.
var otherValues = []string{`null`, `""`, `"a"`, `"a b"`, `"../x"`, `"self"`, `"a\nb"`, `5`, `0`, `-1`, `2.5`, `65`, `1001`, `1e300`, `true`, `[]`,
	`["a"]`, `["a",5]`, `[""]`, `{}`, `{"a":1}`, `{"type":"text","text":"x"}`, `{"parts":[]}`, `"working"`, `"task"`, `"ack"`, `"message"`,
	`"2026-04-26T10:00:00Z"`, `"1960-01-01T00:00:00Z"`, `"` + strings.Repeat("x", 65) + `"`, `"` + strings.Repeat("x", 201) + `"`,
	`"` + strings.Repeat("字", 67) + `"`, `"` + strings.Repeat("字", 1366) + `"`, `"` + strings.Repeat("x", mailbox.MaxBody+1) + `"`,
	`[` + strings.Repeat(`"a",`, 64) + `"a"]`, `[` + strings.Repeat(`{"type":"text","text":"x"},`, 100) + `{"type":"text","text":"x"}]`}

// readOtherwise are the places in which other makes write what our schema does not allow
// (docs/protocol.md 6.3); a value left out, or null, is one everywhere.
var readOtherwise = map[string]bool{"timestamp": true, "task.deadline": true, "task.state": true, "content": true, "content.parts": true,
	"content.parts.0.type": true, "content.parts.1.type": true, "content.parts.2.type": true,
	"content.parts.0": true, "content.parts.1": true, "content.parts.2": true}

// TestChecksAgreeWithTheSchemas changes an envelope in each place to each of many values. What
// the schema accepts is accepted, unless it is empty or too long in all. What it refuses is
// refused for the same field, unless it is a form of other makes, which is written in ours then.
func TestChecksAgreeWithTheSchemas(t *testing.T) {
	t.Parallel()
	for schema, decode := range map[string]func([]byte) (mailbox.Envelope, error){
		mailbox.EnvelopeSchema: mailbox.Decode, mailbox.MessageSchema: mailbox.DecodeDraft,
	} {
		accepted, refused := 0, 0
		variants(t, ours, func(path, value, raw string) {
			want := mailbox.Check(schema, []byte(raw))
			e, err := decode([]byte(raw))
			no, _ := errors.AsType[*mailbox.Error](err)
			said, _ := errors.AsType[*mailbox.Error](want)
			switch {
			case want == nil && err != nil && !strings.Contains(no.Message, "empty"):
				t.Errorf("%s: %s = %.80s: refused with %v", schema, path, value, err)
			case want != nil && err == nil && value != "null" && value != "" && !readOtherwise[path]:
				t.Errorf("%s: %s = %.80s: accepted, the schema says %v", schema, path, value, want)
			case want != nil && err != nil && no.Field != said.Field && !readOtherwise[path]:
				t.Errorf("%s: %s = %.80s: refused with %v, the schema says %v", schema, path, value, err, want)
			}
			if err != nil {
				refused++
				return
			}
			accepted++
			line, err := mailbox.Encode(e)
			if err == nil && schema == mailbox.EnvelopeSchema {
				err = mailbox.Check(schema, line)
			}
			if err != nil {
				t.Errorf("%s: %s = %.80s: written as %s: %v", schema, path, value, line, err)
			}
		})
		if accepted < 100 || refused < 300 {
			t.Errorf("%s: %d accepted, %d refused", schema, accepted, refused)
		}
	}
}

// variants calls try with each value of a document replaced by each of otherValues, and left
// out, which is "".
func variants(t *testing.T, doc string, try func(path, value, raw string)) {
	var whole any
	if err := json.Unmarshal([]byte(doc), &whole); err != nil {
		t.Fatal(err)
	}
	encode := func(path, value string) {
		raw, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		try(path, value, string(raw))
	}
	replace := func(path string, was any, set func(any)) {
		kind, err := json.Marshal(was)
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range otherValues {
			if len(value) < 60 || value[0] == kind[0] { // long texts for texts, long lists for lists
				set(json.RawMessage(value))
				encode(path, value)
			}
		}
		set(was)
	}
	var visit func(path string, node any)
	visit = func(path string, node any) {
		switch node := node.(type) {
		case map[string]any:
			for name, was := range maps.Clone(node) {
				at := strings.TrimPrefix(path+"."+name, ".")
				visit(at, was)
				replace(at, was, func(v any) { node[name] = v })
				delete(node, name)
				encode(at, "")
				node[name] = was
			}
		case []any:
			for i, was := range slices.Clone(node) {
				at := path + "." + strconv.Itoa(i)
				visit(at, was)
				replace(at, was, func(v any) { node[i] = v })
			}
		}
	}
	visit("", whole)
}
