package longconn

import (
	"bytes"
	"testing"
	"time"

	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"
)

// What the SDK can read is read alike.
func FuzzParse(f *testing.F) {
	ours, err := newEvent("relay-1", 493, []byte(`{"schema":"2.0"}`), time.Now())
	if err != nil {
		f.Fatal(err)
	}
	ping, err := larkws.NewPingFrame(1).Marshal()
	if err != nil {
		f.Fatal(err)
	}
	for _, data := range [][]byte{ours, ping, append(ping, 0x9a, 0x06, 1, 'x'), append(ping, 0xa1, 1, 1, 2, 3, 4, 5, 6, 7, 8), {}, {0x2a, 0x7f}, {0x0b}} {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, ok := parse(data)
		_ = got.ackCode()
		_, _ = got.ack()
		var want larkws.Frame
		if want.Unmarshal(data) != nil {
			return
		}
		h := larkws.Headers(want.Headers)
		if !ok {
			t.Fatalf("%x is not read, which the SDK reads: %+v", data, want)
		}
		if int32(got.method) != want.Method || !bytes.Equal(got.payload, want.Payload) ||
			string(got.kind) != h.GetString(larkws.HeaderType) || got.id != h.GetString(larkws.HeaderMessageID) ||
			max(got.sum, 0) != max(h.GetInt(larkws.HeaderSum), 0) || max(got.seq, 0) != max(h.GetInt(larkws.HeaderSeq), 0) {
			t.Errorf("%x: got %+v, the SDK %+v", data, got, want)
		}
	})
}
