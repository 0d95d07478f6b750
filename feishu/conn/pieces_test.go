package conn

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"
)

func piece(t testing.TB, id string, sum, seq, size int) *Frame {
	f := larkws.Frame{Payload: make([]byte, size), Headers: []larkws.Header{
		{Key: "message_id", Value: id}, {Key: "sum", Value: fmt.Sprint(sum)}, {Key: "seq", Value: fmt.Sprint(seq)},
	}}
	data, err := f.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	parsed, ok := ParseFrame(data)
	if !ok {
		t.Fatal("not a frame")
	}
	return parsed
}

func TestPiecesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var dropped atomic.Int64
		p := Pieces{Dropped: func(frames [][]byte) { dropped.Add(int64(len(frames))) }}
		waiting := func() (events, bytes int) {
			p.mu.Lock()
			defer p.mu.Unlock()
			return len(p.events), p.bytes
		}
		for i := range 10 * maxIncomplete {
			p.Add(piece(t, fmt.Sprint(i), 2, 0, 1))
		}
		if events, _ := waiting(); events != maxIncomplete || dropped.Load() != 9*maxIncomplete {
			t.Errorf("%d events, %d dropped", events, dropped.Load())
		}
		for i := range 3 {
			p.Add(piece(t, fmt.Sprint("big", i), 2, 0, maxBytes/2))
		}
		if _, bytes := waiting(); bytes > maxBytes {
			t.Errorf("%d bytes", bytes)
		}
		time.Sleep(piecesWait)
		synctest.Wait()
		if events, bytes := waiting(); events != 0 || bytes != 0 {
			t.Errorf("%d events, %d bytes", events, bytes)
		}
	})
}

func FuzzPieces(f *testing.F) {
	f.Add(piece(f, "a", 2, 0, 3).Raw)
	f.Fuzz(func(t *testing.T, data []byte) {
		frame, ok := ParseFrame(data)
		if !ok {
			return
		}
		p := Pieces{Dropped: func([][]byte) {}}
		p.Add(frame)
		if whole, _, _ := p.Add(frame); whole == nil && p.bytes > 2*len(data) {
			t.Errorf("%d bytes of %d", p.bytes, len(data))
		}
		for _, e := range p.events {
			e.timer.Stop()
		}
		_ = frame.Code()
		if _, err := frame.Whole([]byte("x")); err != nil {
			t.Error(err)
		}
	})
}
