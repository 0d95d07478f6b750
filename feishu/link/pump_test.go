package link_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

func TestPongsTellShortReconnectTimes(t *testing.T) {
	r := newRig(t, tcp(t), nil)
	bot, feishu := r.ready()
	for _, c := range []struct{ pong, want string }{
		{`{"ReconnectCount":-1,"ReconnectInterval":120,"ReconnectNonce":30,"PingInterval":90}`,
			`{"PingInterval":90,"ReconnectCount":-1,"ReconnectInterval":3,"ReconnectNonce":2}`},
		{`{"ReconnectCount":-1,"ReconnectInterval":1,"ReconnectNonce":0,"PingInterval":5}`, // shorter already
			`{"PingInterval":5,"ReconnectCount":-1,"ReconnectInterval":1,"ReconnectNonce":0}`},
		{`{"ReconnectCount":5,"ReconnectInterval":120,"ReconnectNonce":30,"PingInterval":60}`, // it stops after 5
			`{"PingInterval":60,"ReconnectCount":5,"ReconnectInterval":120,"ReconnectNonce":2}`},
		{`{"ReconnectNonce":30}`, `{"PingInterval":60,"ReconnectCount":-1,"ReconnectInterval":3,"ReconnectNonce":2}`},
	} {
		feishu.write(pongFrame(c.pong))
		bot.want(pongFrame(c.want))
	}
	for _, other := range []string{`[]`, `{"PingInterval":"x"}`, `{"PingInterval":1.5}`, `{"PingInterval":1`} {
		feishu.write(pongFrame(other))
		bot.want(pongFrame(other))
	}
}

// Node's SDK loses what comes before it listens, and pings when it does
// (docs/feishu.md 1.7).
func TestNothingReachesABotBeforeItsFirstWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pipes(), nil)
		bot, upstream := r.connect()
		first := eventFrame("m1", event("e1"))
		upstream.write(first)
		if err := <-r.inject(t.Context(), event("ours")); !errors.Is(err, feishu.ErrNotInjected) {
			t.Errorf("injected before the ping: %v", err)
		}
		time.Sleep(1900 * time.Millisecond)
		if n := len(bot.got); n != 0 || r.s.Connected() {
			t.Fatalf("%d messages came before the ping", n)
		}
		bot.ping()
		upstream.want(pingFrame())
		bot.want(first)
		done := r.inject(t.Context(), event("ours"))
		f := bot.frame()
		if string(f.Payload) != event("ours") {
			t.Errorf("got %s", f.Payload)
		}
		bot.write(ackOf(f, 200))
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// The Go and Python SDKs do not ping when they come back, but 2 minutes later.
func TestABotThatComesBackWithoutAPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, pipes(), nil)
		at := time.Now()
		bot, feishu := r.connect()
		feishu.write(eventFrame("m1", event("e1")))
		bot.want(eventFrame("m1", event("e1")))
		done := r.inject(t.Context(), event("ours"))
		bot.write(ackOf(bot.frame(), 200))
		if err := <-done; err != nil {
			t.Error(err)
		}
		if took := time.Since(at); took != 2*time.Second { // Feishu waits for 3
			t.Errorf("waited %v", took)
		}
	})
}

func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		verdict feishu.Verdict
		name    string
	}{{feishu.Pass, "passed"}, {feishu.Keep, "kept"}, {feishu.Refuse, "refused"}} {
		for _, pieces := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s/%d", c.name, pieces), func(t *testing.T) {
				seen := make(chan string, 10)
				r := newRig(t, tcp(t), with(func(event string) (feishu.Verdict, []byte) {
					seen <- event
					return c.verdict, nil
				}))
				bot, feishu := r.ready()
				whole := event("e1")
				for i := range pieces {
					feishu.write(pieceFrame("m1", whole[i*len(whole)/pieces:(i+1)*len(whole)/pieces], pieces, i))
				}
				if got := <-seen; got != whole {
					t.Errorf("the tap saw %s", got)
				}
				switch c.name {
				case "passed":
					for i := range pieces {
						bot.want(pieceFrame("m1", whole[i*len(whole)/pieces:(i+1)*len(whole)/pieces], pieces, i))
					}
				case "kept":
					ack := feishu.frame()
					last := pieceFrame("m1", `{"code":200,"headers":null,"data":null}`, pieces, pieces-1)
					last.Headers = append(last.Headers, ack.Headers[len(ack.Headers)-1])
					if show(bytesOf(t, ack)) != show(bytesOf(t, last)) || ack.LogIDNew != last.LogIDNew || !strings.Contains(show(bytesOf(t, ack)), "biz_rt") {
						t.Errorf("got %s", show(bytesOf(t, ack)))
					}
					bot.nothingBefore(feishu)
				case "refused":
					if ack := feishu.frame(); !strings.Contains(string(ack.Payload), `"code":500`) {
						t.Errorf("got %s", show(bytesOf(t, ack)))
					}
					bot.nothingBefore(feishu)
				}
				feishu.nothingBefore(bot)
				until(t, "it is counted", func() bool { return r.counted(c.name) == 1 })
			})
		}
	}
}

func TestAPanicInTheTapIsAPass(t *testing.T) {
	r := newRig(t, tcp(t), with(func(event string) (feishu.Verdict, []byte) {
		if strings.Contains(event, "e1") {
			panic(event)
		}
		return feishu.Pass, nil
	}))
	bot, feishu := r.ready()
	for _, id := range []string{"e1", "e2"} {
		f := eventFrame(id, event(id))
		feishu.write(f)
		bot.want(f)
		bot.write(ackOf(f, 200))
		feishu.want(ackOf(f, 200))
	}
	if r.counted("panic") != 1 {
		t.Error("not counted")
	}
}

func TestAnotherAppsConnectionPassesUntapped(t *testing.T) {
	r := newRig(t, tcp(t), func(o *link.Options) {
		o.Own = func(id string) bool { return id != app }
		o.Tap = func([]byte) (feishu.Verdict, []byte) { t.Error("tapped"); return feishu.Keep, nil }
	})
	bot, feishu := r.ready()
	f := eventFrame("m1", event("e1"))
	feishu.write(f)
	bot.want(f)
	if r.s.Connected() {
		t.Error("another app's bot counts as ours")
	}
}

// The bot is given what the tap puts in the place of an event, in one frame; Feishu gets its
// acknowledgement.
func TestAnEventIsReplaced(t *testing.T) {
	for _, pieces := range []int{1, 3} {
		const other = `{"other":"你"}`
		r := newRig(t, tcp(t), with(func(event string) (feishu.Verdict, []byte) {
			return feishu.Pass, []byte(other)
		}))
		bot, feishu := r.ready()
		whole := event("e1")
		for i := range pieces {
			feishu.write(pieceFrame("m1", whole[i*len(whole)/pieces:(i+1)*len(whole)/pieces], pieces, i))
		}
		want := eventFrame("m1", other)
		bot.want(want)
		bot.write(ackOf(want, 200))
		feishu.want(ackOf(want, 200))
	}
}

func TestAStuckTapDoesNotHoldUpTheBot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		finish := make(chan struct{})
		r := newRig(t, pipes(), with(func(string) (feishu.Verdict, []byte) {
			<-finish
			return feishu.Pass, nil
		}))
		bot, up := r.ready()
		f := eventFrame("m1", event("e1"))
		up.write(f)
		bot.want(f)
		bot.write(ackOf(f, 200))
		up.want(ackOf(f, 200))
		if r.counted("tap_slow") != 1 {
			t.Error("not counted")
		}
		for i := range 7 { // and does not hold up the next ones for long
			up.write(eventFrame(fmt.Sprint("slow", i), event(fmt.Sprint("slow", i))))
			bot.frame()
		}
		at := time.Now()
		up.write(eventFrame("m9", event("e9")))
		bot.frame()
		if time.Since(at) != 0 || r.counted("untapped") != 1 {
			t.Errorf("held up for %v", time.Since(at))
		}
		close(finish)
	})
}

// What goes to the bot since the tap is slow is told, so that what the tap stores of
// it later is not delivered again.
func TestEventsThatPassASlowTapAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		finish, passed := make(chan struct{}), make(chan string, 9)
		r := newRig(t, pipes(), func(o *link.Options) {
			o.Tap = func(e []byte) (feishu.Verdict, []byte) {
				if strings.Contains(string(e), "slow") {
					<-finish
				}
				return feishu.Keep, nil
			}
			o.Passed = func(e []byte) { passed <- string(e) }
		})
		bot, up := r.ready()
		fast := eventFrame("m1", event("e1"))
		up.write(fast)
		up.frame() // its acknowledgement
		slow := eventFrame("m2", event("slow"))
		up.write(slow)
		bot.want(slow)
		if e := <-passed; e != event("slow") {
			t.Errorf("told of %s", e)
		}
		close(finish)
		synctest.Wait()
		if len(passed) > 0 {
			t.Errorf("told of %s, too", <-passed)
		}
	})
}

func TestAcksOfFramesThatAreNotOursPass(t *testing.T) {
	r := newRig(t, tcp(t), nil)
	bot, feishu := r.ready()
	f := eventFrame("m1", event("e1"))
	feishu.write(f)
	bot.want(f)
	for _, code := range []int{200, 500} {
		bot.write(ackOf(f, code))
		feishu.want(ackOf(f, code))
	}
	bot.write(ackOf(eventFrame("relay-nobody-waits", ""), 200))
	feishu.nothingBefore(bot)
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
