package sse_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"feishu-relay/internal/sse"
)

func TestRead(t *testing.T) {
	stream := strings.NewReader("retry: 1000\n\n: still here\n\nevent: message\nid: 7\ndata: {\"a\":1}\n\n" +
		"event: stop\ndata:{}\n\nevent: torn\ndata: {")
	var got []sse.Event
	var last error
	for e, err := range sse.Read(stream) {
		if last = err; err == nil {
			got = append(got, e)
		}
	}
	if len(got) != 2 || got[0].Kind != "message" || got[0].ID != "7" || string(got[0].Data) != `{"a":1}` ||
		got[1].Kind != "stop" || got[1].ID != "" || string(got[1].Data) != "{}" {
		t.Errorf("events: got %+v", got)
	}
	if !errors.Is(last, io.EOF) {
		t.Errorf("end: got %v, want %v", last, io.EOF)
	}
}
