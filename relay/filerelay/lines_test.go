package filerelay

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"feishu-relay/internal/jsonl"
)

// FuzzUsable: what is handed over of a line is a message in it, and a valid line is
// handed over as it is.
func FuzzUsable(f *testing.F) {
	f.Add([]byte("\xff\x00"))
	f.Add([]byte(" \t"))
	f.Add([]byte(`{"relay_msg_id":"a{"relay_msg_id":"b"}`))
	f.Add([]byte(`{"relay_msg_id":{"relay_msg_id":1}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r := &reader{q: &Queue{log: slog.New(slog.DiscardHandler)}}
		got := r.usable(jsonl.Line{Text: text})
		switch {
		case json.Valid(text) && !bytes.Equal(got, text):
			t.Fatalf("valid line %.80q became %.80q", text, got)
		case got == nil && strings.Trim(string(text), " \t\r\v\f") != "":
			t.Fatalf("line %.80q was dropped", text)
		case !bytes.HasSuffix(text, got):
			t.Fatalf("line %.80q became %.80q", text, got)
		}
	})
}

func FuzzCheckpoint(f *testing.F) {
	f.Add([]byte(`{"file":{"dev":1,"ino":2},"offset":300,"sum":"0123456789abcdef","after":7,"history":{"file":{"dev":1,"ino":2},"offset":9,"after":1}}`))
	f.Add([]byte(`{"offset":-1}`))
	f.Add([]byte(`{"sum":"zz"}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseCheckpoint(data)
		if err != nil {
			if !errors.Is(err, errBroken) {
				t.Fatalf("error %v does not say that the checkpoint is broken", err)
			}
			return
		}
		if c.Offset < 0 || c.After > maxNumber {
			t.Fatalf("accepted %+v", c)
		}
		again, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		back, err := parseCheckpoint(again)
		if err != nil {
			t.Fatalf("own checkpoint is refused: %v", err)
		}
		if back.File != c.File || back.Offset != c.Offset || back.Sum != c.Sum || back.After != c.After {
			t.Fatalf("came back as %+v, was %+v", back, c)
		}
	})
}
