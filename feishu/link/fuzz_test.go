package link_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/coder/websocket"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/feishu"
)

// Whatever either side sends, what is sent after it arrives.
func FuzzFrame(f *testing.F) {
	for _, s := range []*larkws.Frame{
		pingFrame(), pongFrame(""), pongFrame(`{"PingInterval":1}`), pongFrame(`{"PingInterval":-99999999999}`),
		eventFrame("m", event("e")), pieceFrame("m", "x", 2, 0), pieceFrame("m", "x", 2, 1), pieceFrame("m", "x", -1, 5),
		pieceFrame("m", "x", 1<<40, 1<<39), ackOf(eventFrame("relay-x", ""), 200), ackOf(eventFrame("m", ""), 500),
	} {
		f.Add(bytesOf(f, s), true)
		f.Add(bytesOf(f, s), false)
	}
	f.Add([]byte{}, true)
	f.Add([]byte{0x2a, 0xff, 0xff, 0xff, 0xff, 0x7f}, false)
	r := newRig(f, tcp(f), with(func(event string) (feishu.Verdict, []byte) {
		if len(event)%7 == 3 {
			panic("odd")
		}
		return feishu.Verdict(len(event) % 5), nil
	}))
	bot, up := r.ready()
	n := 0
	f.Fuzz(func(t *testing.T, data []byte, down bool) {
		from, to := bot, up
		if down {
			from, to = up, bot
		}
		n++
		mark := fmt.Appendf(nil, "mark %d", n)
		for _, m := range [][]byte{data, mark} {
			if err := from.conn.Write(t.Context(), websocket.MessageBinary, m); err != nil {
				t.Fatal(err)
			}
		}
		for {
			select {
			case m := <-to.got: // among them what waited in pieces
				if !bytes.Equal(m.data, mark) {
					continue
				}
			case <-to.gone:
				t.Fatal(to.err)
			}
			break
		}
		for len(from.got) > 0 { // acknowledgements
			<-from.got
		}
	})
}
