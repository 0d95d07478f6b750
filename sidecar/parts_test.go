package sidecar

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/mailbox"
	"feishu-relay/policy"
	"feishu-relay/relay"
)

// A message that is said to come from the future is no newer than now: what
// people say after it counts.
func TestTalkFromTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := aSidecar(t)
		now := relay.MillisOf(time.Now())
		s.chats.noteTalk(talk{Channel: "feishu", ChatID: "oc_1", MessageID: "om_1", At: now * 1000}) // microseconds
		time.Sleep(time.Second)
		s.chats.noteTalk(talk{Channel: "feishu", ChatID: "oc_1", MessageID: "om_2", At: now + 1000})
		if got, _ := s.chats.talk("feishu", "oc_1"); got.MessageID != "om_2" {
			t.Errorf("the newest message is %s, want om_2", got.MessageID)
		}
	})
}

// aSidecar is one that does not run.
func aSidecar(t *testing.T) *Sidecar {
	t.Helper()
	dir := t.TempDir()
	s, err := New(Config{Agent: "agent_b", ListenAddr: "127.0.0.1:0", Backend: "file", RelayDir: dir + "/relay",
		TranscriptDir: dir + "/transcripts", MaxAge: time.Minute}, Options{})
	must(t, err)
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// must ends a test at an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A reply to a message that Feishu does not have stays in the topic where it was
// said, whatever a person said elsewhere.
func TestWhatAMessageThatFeishuLacksIsAbout(t *testing.T) {
	t.Parallel()
	s := aSidecar(t)
	s.chats.noteTalk(talk{Channel: "feishu", ChatID: "oc_x", ChatType: feishu.ChatGroup, MessageID: "om_newest", At: relay.MillisOf(time.Now())})
	for _, tt := range []struct {
		name  string
		m     relay.Message
		about relay.MessageID
	}{
		{"it answers a message", relay.Message{ParentID: "om_parent", RootID: "om_root", ThreadID: "omt_1"}, "om_parent"},
		{"in a topic it answers what Feishu lacks, too", relay.Message{ParentID: "api:1", RootID: "om_root", ThreadID: "omt_1"}, "om_root"},
		{"in a topic it answers nothing", relay.Message{RootID: "om_root", ThreadID: "omt_1"}, "om_root"},
		{"in the chat", relay.Message{ParentID: "api:1"}, "om_newest"},
	} {
		tt.m.Channel, tt.m.ChatID, tt.m.RelayMsgID = "feishu", "oc_x", "api:2"
		shown := newGatewayDoor(s).idOf(&tt.m)
		if about, ok := feishu.AboutMail(shown); !ok || about != tt.about {
			t.Errorf("%s: it is shown as %s, about %s; want about %s", tt.name, shown, about, tt.about)
		}
	}
}

// A bot that reads an event and never answers is waited for no longer than DELIVERY_TIMEOUT.
func TestHandOverToABotThatNeverAnswers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const limit = time.Hour
		ended := make(chan error, 1)
		err := handOver(t.Context(), time.Now().Add(time.Minute), limit, func(ctx context.Context, written func()) error {
			written()
			<-ctx.Done()
			ended <- ctx.Err()
			return ctx.Err()
		})
		if err != nil {
			t.Fatalf("written, and not answered: %v", err)
		}
		time.Sleep(limit - time.Second)
		synctest.Wait()
		if len(ended) != 0 {
			t.Error("the answer is not waited for any longer, before the limit")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if len(ended) != 1 {
			t.Error("the answer is still waited for")
		}
	})
}

// What is not written in time is not given to this bot any more.
func TestHandOverInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		until := time.Now().Add(time.Minute)
		err := handOver(t.Context(), until, time.Hour, func(ctx context.Context, _ func()) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) || time.Now().Before(until) {
			t.Errorf("not written: %v, want that it was cancelled at its end", err)
		}
		err = handOver(t.Context(), time.Now().Add(time.Minute), time.Hour, func(ctx context.Context, written func()) error {
			<-ctx.Done()
			written() // in the moment in which it is cancelled
			return ctx.Err()
		})
		if err != nil {
			t.Errorf("written at the last moment: %v", err)
		}
	})
}

// A message that went to the bot while it was still being stored is recorded, and
// not delivered again.
func TestWhatTheBotHasFromFeishuIsNotDeliveredAgain(t *testing.T) {
	t.Parallel()
	posted := make(chan string, 9)
	bot := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var in relay.Inbound
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			t.Error(err)
		}
		posted <- in.Content
	}))
	defer bot.Close()
	dir := t.TempDir()
	s, err := New(Config{Agent: "agent_b", ListenAddr: "127.0.0.1:0", Gateway: GatewayConfig{Addr: "127.0.0.1:0"}, InjectURL: bot.URL,
		Backend: "file", RelayDir: dir + "/relay", TranscriptDir: dir + "/transcripts", DataDir: dir, MaxAge: time.Minute,
		MembershipCheck: "off", Limits: policy.Limits{MaxDepth: 9, Threshold: 9}}, Options{})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	defer func() { cancel(); <-done }()

	h := host{Sidecar: s}
	store := func(id, text string) {
		m := feishu.Message{ID: relay.MessageID(id), ChatID: "oc_x", ChatType: feishu.ChatGroup, Type: "text",
			Content: `{"text":"` + text + `"}`, CreateTime: relay.MillisOf(time.Now()),
			Sender: feishu.Sender{Type: feishu.SenderBot, OpenID: "ou_a"}}
		must(t, h.Native(t.Context(), m, false))
	}
	h.Passed("om_1")
	store("om_1", "seen")
	store("om_2", "not seen")
	if got := <-posted; got != "not seen" {
		t.Errorf("the bot was given %q", got)
	}
	entries, err := s.chats.transcript.Tail("feishu", "oc_x", 9)
	if err != nil || len(entries) != 2 || entries[0].Content != "seen" {
		t.Errorf("the transcript has %+v, %v", entries, err)
	}
}

// The vector was made with openssl; docs/api.md shows it.
func TestPostSignature(t *testing.T) {
	got := postSignature("0123456789abcdef", "1795368201", []byte(`{"content":"你好"}`))
	if want := "v1=4b939a825e8178c49fdcf0f75db21fa6a31776995f80201e9ac5635f74a2bf76"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A clock that differs is reported once, whichever of the two sidecars is wrong; the old card of one that
// no longer runs, and a foreign program's local time, are not.
func TestClocksThatDiffer(t *testing.T) {
	for _, tt := range []struct {
		name  string
		ahead time.Duration
		dead  bool // its card is not written again
		alien bool // it has no sidecar
		want  string
	}{
		{name: "right"},
		{name: "a little ahead", ahead: relay.MaxAhead},
		{name: "a little behind", ahead: -relay.MaxAhead},
		{name: "ahead", ahead: 3 * time.Hour, want: "the clock of agent_c's host is 3h0m0s ahead of this one's"},
		{name: "behind", ahead: -3 * time.Hour, want: "the clock of agent_c's host is 3h0m0s behind this one's"},
		{name: "dead", ahead: -3 * time.Hour, dead: true},
		{name: "foreign", ahead: 8 * time.Hour, alien: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := aSidecar(t).presence
				p.shared = &mailbox.Settings{}
				began := time.Now()
				p.store = registry{cards: func() []mailbox.Card {
					c := mailbox.Card{AgentID: "agent_c", LastHeartbeat: began.Add(tt.ahead)}
					if !tt.dead {
						c.LastHeartbeat = time.Now().Add(tt.ahead)
					}
					if !tt.alien {
						c.Sidecar = &mailbox.Settings{}
					}
					return []mailbox.Card{c}
				}}
				for range 5 {
					time.Sleep(2 * presenceFresh)
					p.read(t.Context())
				}
				var got []Problem
				for _, problem := range p.problems.list() {
					if problem.Part == "clock" {
						got = append(got, problem)
					}
				}
				if tt.want == "" && len(got) > 0 {
					t.Errorf("got %v, want nothing", got)
				}
				if tt.want != "" && (len(got) != 1 || !strings.HasPrefix(got[0].Error, tt.want) || got[0].Count != 1) {
					t.Errorf("got %v, want once %q", got, tt.want)
				}
			})
		})
	}
}

// registry is one whose cards are read by a function.
type registry struct {
	mailbox.Store
	cards func() []mailbox.Card
}

func (r registry) Cards(context.Context) ([]mailbox.Card, error) { return r.cards(), nil }

// A file whose size Feishu did not say is cut off beyond FILE_MAX: the caller sees that it is not whole.
func TestFilesWithoutTheirSize(t *testing.T) {
	for size, whole := range map[int]bool{10: true, 11: false} {
		body := io.NopCloser(strings.NewReader(strings.Repeat("x", size)))
		content, _ := atMost(relay.FileContent{Size: -1, Body: body}, 10)
		data, err := io.ReadAll(content.Body)
		if (err == nil) != whole || whole && len(data) != size {
			t.Errorf("%d bytes: got %d, %v", size, len(data), err)
		}
	}
}

// The usual spellings of the commands with which a bot ends a task are commands, and what is behind them is the reason.
func TestSpellingsOfCommands(t *testing.T) {
	for text, want := range map[string][2]string{
		"/fail": {"/fail", "it says /fail"}, "/FAIL no compiler": {"/fail", "no compiler"},
		"/fail　没有编译器": {"/fail", "没有编译器"}, "/fail。没有编译器": {"/fail", "没有编译器"},
		"**/fail** no compiler": {"/fail", "no compiler"}, "`/fail` no compiler": {"/fail", "no compiler"},
		"`/fail no compiler`": {"/fail", "no compiler"}, "@researcher /fail no compiler": {"/fail", "no compiler"},
		"/fail - no compiler": {"/fail", "no compiler"}, "／fail 没有编译器": {"/fail", "没有编译器"},
		"/reject！没有编译器": {"/reject", "没有编译器"}, "**/reject**": {"/reject", "it says /reject"},
		"/failure is handled": {}, "it says /fail": {}, "@researcher it is written": {},
	} {
		if reason, word := command(text); [2]string{word, reason} != want {
			t.Errorf("%q: got %q with %q, want %q", text, word, reason, want)
		}
	}
}
