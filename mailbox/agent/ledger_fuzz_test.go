package agent

import (
	"bytes"
	"reflect"
	"testing"

	"feishu-relay/internal/spool"
	"feishu-relay/relay"
)

// What the reader takes is what it wrote: read, written and read again, it is the same.
func FuzzLedger(f *testing.F) {
	f.Add([]byte(`{"id":"t","direction":"received","peer":"manager","state":"pending","message_id":"m","ttl":3,"trace":["manager"],"created_at":"2026-11-21T10:00:00Z","updated_at":"2026-11-21T10:00:00.123456789+08:00"}`))
	f.Add([]byte(`{"id":"t","direction":"sent","peer":"coder","state":"failed","overdue":true,"deadline":"0000-01-01T00:00:00+23:59","callback":{"channel":"feishu"}}`))
	f.Add([]byte(`{"id":"\ud800","direction":"sent","peer":"coder","state":"failed","text":"\u0000<"}`))
	f.Add([]byte(`{"trace":null}`))
	files := spool.New[TaskRecord](nil, taskFileOptions(nil))
	decode := func(data []byte) (TaskRecord, error) {
		r, err := files.Decode(data)
		if err == nil {
			r, err = tidyTask(r)
		}
		return r, err
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decode(data)
		if err != nil {
			return
		}
		if name := r.name(); len(name) > 200 || bytes.ContainsAny([]byte(name), "/\\\x00") {
			t.Fatalf("file name %q", name)
		}
		line, err := relay.Marshal(r)
		if err != nil {
			t.Fatalf("read and not written: %v", err)
		}
		again, err := decode(line)
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Fatalf("%v\nread    %+v\nwritten %s\nagain   %+v", err, r, line, again)
		}
	})
}
