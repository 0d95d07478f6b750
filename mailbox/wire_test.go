package mailbox_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

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
		line, err := mailbox.Encode(e)
		if diff := cmp.Diff(valueOf([]byte(was.Line)), valueOf(line)); diff != "" || err != nil {
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
