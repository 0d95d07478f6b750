package link_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"feishu-relay/dedup"
	"feishu-relay/feishu"
	"feishu-relay/feishu/link"
)

func TestFramesPassByteForByte(t *testing.T) {
	r := newRig(t, tcp(t), with(func(string) (feishu.Verdict, []byte) { return feishu.Pass, nil }))
	bot, feishu := r.ready()
	if feishu.uri != "/ws/v2?"+query {
		t.Errorf("Feishu saw %s", feishu.uri)
	}
	frames := [][]byte{
		bytesOf(t, eventFrame("m1", event("e1"))),
		bytesOf(t, pongFrame("")),
		bytesOf(t, pongFrame("no JSON")),
		append(bytesOf(t, eventFrame("m2", event("e2"))), 0x9a, 0x06, 1, 'x'), // an unknown field
		[]byte("no frame"),
		{},
		bytes.Repeat([]byte("x"), 2<<20),
	}
	for _, f := range frames {
		feishu.raw(f)
		if got := bot.message(); !bytes.Equal(got.data, f) || got.typ != websocket.MessageBinary {
			t.Errorf("to the bot: got %.200q, want %.200q", got.data, f)
		}
		bot.raw(f)
		if got := feishu.message(); !bytes.Equal(got.data, f) {
			t.Errorf("to Feishu: got %.200q, want %.200q", got.data, f)
		}
	}
}

// Feishu repeats what it has no acknowledgement of, at times in another event. The bot gets it once, unless it went
// away before it acknowledged it.
func TestTheBotGetsARepeatedEventOnce(t *testing.T) {
	message := func(id string) string {
		return `{"schema":"2.0","header":{"event_id":"` + id + `","event_type":"im.message.receive_v1","app_id":"` + app +
			`"},"event":{"message":{"message_id":"om_1"}}}`
	}
	answered := dedup.Memory(0)
	options := func(o *link.Options) { o.Answered = answered }
	r := newRig(t, tcp(t), options)
	bot, up := r.ready()
	first := eventFrame("m1", message("e1"))
	up.write(first)
	bot.want(first)
	up.write(eventFrame("m2", message("e1"))) // while the bot works on it
	if f := up.frame(); messageID(f) != "m2" || f.Payload == nil || r.counted("in_progress") != 1 {
		t.Errorf("Feishu got %v %s", f.Headers, f.Payload)
	}
	ack := ackOf(first, 200)
	bot.write(ack)
	up.want(ack)
	up.write(eventFrame("m3", message("e2")))
	until(t, "it is dropped", func() bool { return r.counted("repeated") == 1 })
	if f := up.frame(); messageID(f) != "m3" || !strings.Contains(string(f.Payload), `"code":200`) {
		t.Errorf("Feishu got %v %s", f.Headers, f.Payload)
	}
	again := newRig(t, tcp(t), options) // after a restart
	bot, up = again.ready()
	up.write(eventFrame("m4", message("e3")))
	until(t, "it is dropped", func() bool { return again.counted("repeated") == 1 })
	other := eventFrame("m5", event("e4"))
	up.write(other)
	bot.want(other)
}
