package link_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/feishu"
	"feishu-relay/feishu/link"
	"feishu-relay/internal/test/talktest"
)

// talk is a conversation over the long connections of one app.
type talk struct {
	*rig
	ends     map[string]*socket // bot, feishu, bot2, feishu2
	own      string             // the app that is the sidecar's own; "": any
	does     string             // what the tap does
	instead  string
	saw      []string
	passed   []string
	injected map[string]*injection
	last     time.Time // of the last line but for takes
	frozen   chan struct{}
}

// injection is one that a test has begun.
type injection struct {
	frame  *larkws.Frame // as a bot got it
	done   chan error
	cancel context.CancelFunc
	late   bool
}

// The conversations of testdata/links.txt: a message, or what is to be seen of the server, a line.
func TestTalks(t *testing.T) {
	talktest.Run(t, "testdata/links.txt", func(t *testing.T, lines string) {
		synctest.Test(t, func(t *testing.T) {
			k := &talk{ends: map[string]*socket{}, injected: map[string]*injection{}, frozen: make(chan struct{})}
			defer close(k.frozen)
			k.rig = newRig(t, pipes(), func(o *link.Options) {
				o.Own = func(id string) bool { return k.own == "" || id == k.own }
				o.Tap = k.tap
				o.Passed = func(e []byte) { k.passed = append(k.passed, eventID(e)) }
			})
			for line := range talktest.Steps(t, lines) {
				k.step(line)
			}
		})
	})
}

// eventID is the id of an event, or the whole of one without.
func eventID(e []byte) string {
	_, id, _ := strings.Cut(string(e), `"event_id":"`)
	if id, _, ok := strings.Cut(id, `"`); ok {
		return id
	}
	return string(e)
}

func (k *talk) tap(e []byte) (feishu.Verdict, []byte) {
	k.saw = append(k.saw, eventID(e))
	switch k.does {
	case "keep":
		return feishu.Keep, nil
	case "refuse":
		return feishu.Refuse, nil
	case "replace":
		return feishu.Pass, []byte(k.instead)
	case "slow":
		<-k.frozen
	case "panic":
		panic("boom")
	}
	return feishu.Pass, nil
}

func (k *talk) is(got, want any) {
	k.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		k.t.Errorf("got %v, want %v", got, want)
	}
}

// step is a line of a conversation.
func (k *talk) step(line string) {
	who, rest, _ := strings.Cut(line, " ")
	word := strings.Fields(rest)
	if who != "took" {
		defer func(begin time.Time) { k.last = begin }(time.Now())
	}
	pause := func() time.Duration {
		d, err := time.ParseDuration(word[0])
		if err != nil {
			k.t.Fatal(err)
		}
		return d
	}
	switch who {
	case "tap":
		k.does, k.instead, _ = strings.Cut(rest, " ")
	case "own":
		k.own = rest
	case "ping": // the interval that Feishu gives, in seconds
		k.feishu.says(200, strings.Replace(k.feishu.answer, `"PingInterval":120`, `"PingInterval":`+rest, 1), nil)
	case "wait":
		time.Sleep(pause())
	case "alive": // for a time in which the bot and Feishu ping
		stop := keepUp(k.ends["bot"], k.ends["feishu"])
		time.Sleep(pause())
		stop()
	case "took":
		k.is(time.Since(k.last), pause())
	case "connected":
		synctest.Wait()
		k.is(k.s.Connected(), rest == "yes")
	case "counted":
		synctest.Wait()
		k.is(k.counted(word[1]), word[0])
	case "saw":
		k.is(k.saw, word)
	case "passed":
		synctest.Wait()
		k.is(k.passed, word)
	case "inject":
		in := &injection{done: make(chan error, 1)}
		ctx, cancel := context.WithCancel(k.t.Context())
		in.cancel, k.injected[rest] = cancel, in
		go func() {
			in.done <- k.s.Inject(ctx, feishu.Injection{Event: []byte(event(rest)), Late: func() { in.late = true }})
		}()
		synctest.Wait()
	case "cancel":
		k.injected[rest].cancel()
	case "late":
		if word[0] == "ends" { // the injection of that name
			k.ended(who, word[1])
			return
		}
		synctest.Wait()
		k.is(k.injected[rest].late, true)
	case "close":
		if err := k.s.Close(k.t.Context()); err != nil {
			k.t.Error(err)
		}
	case "bot", "bot2", "feishu", "feishu2":
		k.end(who, word, rest)
	default:
		k.ended(who, word[1])
	}
}

// ended expects the end of an injection.
func (k *talk) ended(name, how string) {
	err := <-k.injected[name].done
	answer, _ := errors.AsType[*feishu.AnswerError](err)
	ok := map[string]bool{"ok": err == nil, "not-injected": errors.Is(err, feishu.ErrNotInjected),
		"ended": errors.Is(err, feishu.ErrInjectionEnded), "canceled": errors.Is(err, context.Canceled),
		"closed": errors.Is(err, link.ErrClosed) || errors.Is(err, feishu.ErrInjectionEnded),
		"500":    answer != nil && answer.Code == 500}[how]
	if !ok {
		k.t.Errorf("%s ended with %v, want %s", name, err, how)
	}
}

// end is what an end of a connection does, or gets.
func (k *talk) end(who string, word []string, rest string) {
	s, other := k.ends[who], k.ends[map[string]string{"bot": "feishu", "feishu": "bot"}[who]]
	up := strings.Replace(who, "bot", "feishu", 1)
	number := func(i int) (n int) { fmt.Sscan(word[i], &n); return n }
	frame := func() *larkws.Frame { // event FRAME ID, ack FRAME ID CODE, piece FRAME SUM SEQ TEXT, pong JSON
		text := strings.SplitN(rest, " ", 6)
		switch word[1] {
		case "event":
			return eventFrame(word[2], event(word[3]))
		case "ack":
			return ackOf(eventFrame(word[2], event(word[3])), number(4))
		case "piece":
			return pieceFrame(strings.Trim(word[2], `"`), text[5], number(3), number(4))
		}
		return pongFrame(strings.Join(word[2:], " "))
	}
	switch word[0] {
	case "connects":
		k.ends[who], k.ends[up] = k.connect()
	case "pings":
		s.ping()
		k.ends[up].want(pingFrame())
	case "sends":
		s.write(frame())
	case "acks":
		s.write(ackOf(eventFrame(word[1], event(word[2])), number(3)))
	case "answers":
		s.write(ackOf(k.injected[word[1]].frame, number(2)))
	case "is":
		switch word[1] {
		case "ready", "deaf": // which answers none of the WebSocket's own pings
			k.ends[who], k.ends[up] = k.pinged(word[1] == "deaf")
		case "cut":
			_ = s.conn.CloseNow()
		case "gone":
			<-s.gone
		case "closed":
			<-s.gone
			code, _ := s.closed()
			k.is(int(code), word[2])
		}
	case "gets":
		switch word[1] {
		case "no":
			k.is(len(s.got), 0)
		case "nothing":
			s.nothingBefore(other)
		case "code":
			f := patient(s)
			k.is(messageID(f), word[2])
			k.is(strings.Contains(string(f.Payload), `"code":`+word[3]), true)
			k.is(larkws.Headers(f.Headers).GetString(larkws.HeaderBizRt) != "", true)
		case "injected":
			f := patient(s)
			if in := k.injected[word[2]]; in.frame != nil {
				k.is(messageID(f), messageID(in.frame))
			} else {
				in.frame = f
			}
			k.is(string(f.Payload), event(word[2]))
		default:
			want := bytesOf(k.t, frame())
			if got := (<-s.got).data; !slices.Equal(got, want) {
				k.t.Errorf("got %s\nwant %s", show(got), show(want))
			}
		}
	}
}
