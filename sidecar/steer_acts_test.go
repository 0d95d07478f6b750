//go:build unix

package sidecar_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	lark "github.com/larksuite/oapi-sdk-go/v3"
	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/group"
	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/wait"
	"feishu-relay/sidecar"
	"feishu-relay/transcript"
)

// pair is BotA with a sidecar in this process, and BotB with one in processes of its own.
type pair struct {
	*tenant
	apps       []feishusim.App
	botA, botB *sdkBot
	b          *process
	disconnect func() // BotB
}

// newPair is a pair whose bots and sidecars know each other.
func newPair(t *testing.T, change func(*sidecar.Config)) *pair {
	t.Helper()
	p := &pair{disconnect: func() {}}
	t.Cleanup(func() { p.disconnect() })
	p.tenant, p.apps = newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	cfg := p.steered("agent_a")
	change(&cfg)
	a := p.start(cfg)
	p.botA = p.bot(p.apps[0], "http://"+a.Gateway().String(), nil)
	p.connected(a)
	cfg = p.steered("agent_b")
	cfg.Gateway.Addr = freeAddr(t)
	change(&cfg)
	p.b = newProcess(t, p.dir, cfg)
	p.botB = &sdkBot{app: p.apps[1], heard: make(chan heard, 1000)}
	p.again("")
	p.botA.introduce(t)
	p.says("hello")
	p.hears(p.botA, "hello")
	p.hears(p.botB, "hello")
	p.until("both are known in the group", func() bool {
		status := p.answers("/relay status")
		return strings.Contains(status, "BotA") && strings.Contains(status, "BotB")
	})
	p.until("BotA's sidecar knows that BotB is online", func() bool { // else it is BotA's turn at once
		return slices.ContainsFunc(a.Status().Agents, func(s sidecar.AgentStatus) bool { return s.Agent == "agent_b" && s.Online })
	})
	p.noted()
	return p
}

// noted waits until the answers to all commands are noted: a sidecar that is killed before shows again
// what it has shown.
func (n *tenant) noted() {
	n.t.Helper()
	n.until("the answers are noted", func() bool {
		answers, commands := map[string]bool{}, []string{}
		for _, e := range n.marks() {
			switch e.Mark.Kind {
			case "command":
				commands = append(commands, e.Mark.Of)
			case "notice":
				answers[e.Mark.Of] = true
			}
		}
		return !slices.ContainsFunc(commands, func(id string) bool { return !answers[id] })
	})
}

// again ends BotB's sidecar and begins a life of it, to end at a point if there is one, in which the
// bot is connected anew: its SDK would take its time.
func (p *pair) again(crashAt string) {
	p.t.Helper()
	p.b.kill()
	p.b.start(crashAt)
	url, err := p.b.url(limited(p.t))
	must(p.t, err)
	p.until("BotB is connected", func() bool {
		p.reconnect()
		connecting, cancel := context.WithTimeout(context.Background(), 5*time.Second) // an SDK that failed waits for minutes
		defer cancel()
		return wait.Until(connecting, 20*time.Millisecond, func(context.Context) (bool, error) {
			return series(httpGet(p.t, url+"/metrics"), `feishu_relay_gateway_events_total{event="connected"}`) > 0, nil
		}) == nil
	})
	must(p.t, p.WaitConnected(limited(p.t), p.apps[1].ID, 1))
	p.botB.client = lark.NewClient(p.apps[1].ID, p.apps[1].Secret, lark.WithOpenBaseUrl("http://"+p.b.cfg.Gateway.Addr),
		lark.WithLogLevel(larkcore.LogLevelError))
	p.botB.introduce(p.t)
}

// reconnect begins a new connection of BotB to its gateway, and does not wait for it.
func (p *pair) reconnect() {
	p.disconnect()
	ctx, cancel := context.WithCancel(context.Background())
	ws := larkws.NewClient(p.apps[1].ID, p.apps[1].Secret, larkws.WithDomain("http://"+p.b.cfg.Gateway.Addr),
		larkws.WithLogLevel(larkcore.LogLevelError), larkws.WithEventHandler(p.botB.dispatcher(nil)))
	var done sync.WaitGroup
	done.Go(func() { _ = ws.Start(ctx) })
	p.disconnect = sync.OnceFunc(func() {
		cancel()
		done.Wait()
	})
}

// dies waits for the end of a life.
func (p *process) dies(t *testing.T) {
	t.Helper()
	eventually(limited(t), t, p.agent+" comes to the point of its end", p.isDead)
}

// isDead reports whether the present life has ended.
func (p *process) isDead() bool {
	l, _ := p.current()
	select {
	case <-l.exited:
		return true
	default:
		return false
	}
}

// discuss lets the bots talk until the third message, which stops at BotB, and returns that.
func (n *tenant) discuss(botA, botB *sdkBot, about string) feishusim.Message {
	n.t.Helper()
	n.says("discuss " + about)
	n.hears(botB, "discuss "+about)
	n.reply(botA, n.hears(botA, "discuss "+about), botB.app.ID, "one "+about)
	n.reply(botB, n.hears(botB, "one "+about), botA.app.ID, "two "+about)
	n.reply(botA, n.hears(botA, "two "+about), botB.app.ID, "three "+about)
	return n.sees("three " + about)
}

// replies are what was replied to a message.
func (n *tenant) replies(id string) (texts []string) {
	for _, m := range n.Messages(n.chat) {
		if m.ParentID == id {
			texts = append(texts, m.Text)
		}
	}
	return texts
}

// marks are what the sidecars' marks say in the group, oldest first.
func (n *tenant) marks() (all []transcript.Entry) {
	for _, r := range sideRecords(filepath.Join(n.dir, "relay"), n.chat) {
		if r.Kind == group.KindCommand || r.Kind == group.KindNotice {
			all = append(all, transcript.Entry{Content: r.Text, Sender: string(r.Agent), MessageID: string(r.Message),
				Mark: &transcript.Mark{Kind: string(r.Kind), Act: string(r.Act), Of: string(r.Of)}})
		}
	}
	return all
}

// sideRecords are the records of a chat on the side lane in a folder, each command and notice once.
func sideRecords(relayDir, chat string) (all []group.Record) {
	data, _ := os.ReadFile(filepath.Join(relayDir, "side", "side.jsonl"))
	return recordsIn(strings.Split(string(data), "\n"), chat)
}

func recordsIn(lines []string, chat string) (all []group.Record) {
	known := map[string]bool{}
	for _, line := range lines {
		var s struct {
			ChatID  string         `json:"chat_id"`
			Records []group.Record `json:"records"`
		}
		if json.Unmarshal([]byte(line), &s) != nil || s.ChatID != chat {
			continue
		}
		for _, r := range s.Records {
			if r.ID == "" || !known[r.ID] {
				known[r.ID] = true
				all = append(all, r)
			}
		}
	}
	return all
}

// noticeOn is the notice that is on a message, if there is one.
func (n *tenant) noticeOn(id string) (notices []transcript.Entry) {
	for _, e := range n.marks() {
		if e.Mark.Kind == "notice" && e.Mark.Act == "stop" && e.Mark.Of == id {
			notices = append(notices, e)
		}
	}
	return notices
}

// A sidecar is killed at each step of showing that its bot was stopped: it is shown once.
func TestNoticesUnderKills(t *testing.T) {
	t.Parallel()
	for _, form := range []string{"text", "reaction"} {
		for _, step := range []string{"claimed", "sending", "shown"} {
			t.Run(form+"/"+step, func(t *testing.T) {
				t.Parallel()
				n := newPair(t, func(cfg *sidecar.Config) { cfg.Steer.StopNotice = form })
				n.again(step + ":1")
				third := n.discuss(n.botA, n.botB, "this")
				for i := 0; !n.b.isDead(); i++ {
					n.until("BotB's sidecar dies, or BotA's shows it", func() bool { return n.b.isDead() || len(n.noticeOn(third.ID)) > 0 })
					if !n.b.isDead() { // it was slow and lost its turn
						third = n.discuss(n.botA, n.botB, fmt.Sprint("that ", i))
					}
				}
				n.again("")
				n.until("the notice is noted", func() bool { return len(n.noticeOn(third.ID)) > 0 })
				n.answers("/relay status") // what is behind it has been done
				shown := n.reactions(third.ID)
				if form == "text" {
					shown = n.replies(third.ID)
				}
				if len(shown) != 1 {
					t.Errorf("the group was shown %q", shown)
				}
				if got := n.noticeOn(third.ID); len(got) != 1 {
					t.Errorf("the marks have %+v", got)
				}
				n.eachOnce(n.botA)
				if n.botB.given(third.ID) > 0 {
					t.Error("BotB was given what was stopped")
				}
			})
		}
	}
}

// knowWriter waits until a has told that it can write to Feishu, and b has read all that a has.
func (n *tenant) knowWriter(a, b *running) {
	n.t.Helper()
	marks := filepath.Join(n.dir, "relay", "side", "side.jsonl")
	told := regexp.MustCompile(`in:agent_a"[^\n]*?can_write\\?":true`)
	n.until("BotA's sidecar has told that it can write", func() bool {
		data, err := os.ReadFile(marks)
		return err == nil && told.Match(data)
	})
	n.until("BotB's sidecar has read that", func() bool { return n.steeredGroup(a).Version == n.steeredGroup(b).Version })
}

// Where Feishu refuses a sidecar's call, another one shows the notice, also where the first has no
// heartbeat; where Feishu refuses all, only the marks have it, and it counts all the same.
func TestNoticesThatFeishuRefuses(t *testing.T) {
	t.Parallel()
	for _, whose := range []string{"of one", "of one without a heartbeat", "of all"} {
		t.Run(whose, func(t *testing.T) {
			t.Parallel()
			everybody := whose == "of all"
			n, apps, a, b, botA, botB := steeredPair(t, func(cfg *sidecar.Config) {
				if whose == "of one without a heartbeat" && cfg.Agent == "agent_b" {
					cfg.Mailbox.Heartbeat = 0
				}
			})
			n.knowWriter(a, b)
			fault := feishusim.Fault{Kind: feishusim.FaultAnswer, Route: "POST /open-apis/im/v1/messages/*/reactions", Code: 230002,
				App: apps[1].ID}
			if everybody {
				fault.App = ""
			}
			n.Fault(fault)
			third := n.discuss(botA, botB, "this")
			n.until("the notice is noted", func() bool { return len(n.noticeOn(third.ID)) > 0 })
			notices, reactions := n.noticeOn(third.ID), n.reactions(third.ID)
			switch {
			case everybody && (len(reactions) > 0 || !strings.HasPrefix(notices[0].MessageID, "notice:")):
				t.Errorf("the reactions are %q, the notice %+v", reactions, notices)
			case !everybody && (len(reactions) != 1 || notices[0].Sender != "agent_a"):
				t.Errorf("the reactions are %q, the notice %+v", reactions, notices)
			}
			n.says("continue")
			n.hears(botB, "three this")
		})
	}
}

// A sidecar is killed at each step of releasing what was stopped: the bot is given it once.
func TestContinueUnderKills(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"inject", "delivered"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			n := newPair(t, func(*sidecar.Config) {})
			apps, botA, botB := n.apps, n.botA, n.botB
			third := n.discuss(botA, botB, "this")
			n.until("it has a notice", func() bool { return len(n.noticeOn(third.ID)) > 0 })
			n.again(step + ":1")
			n.says("@BotB Go on!", apps[1].ID)
			n.b.dies(t)
			n.again("")
			n.until("BotB has it", func() bool { return botB.given(third.ID) > 0 })
			// The word has started the count anew: as many messages as after a person's pass.
			n.reply(botB, heard{ID: third.ID}, apps[0].ID, "four")
			n.reply(botA, n.hears(botA, "four"), apps[1].ID, "five")
			n.reply(botB, n.hears(botB, "five"), apps[0].ID, "six")
			sixth := n.sees("six")
			n.until("the sixth stops", func() bool { return len(n.noticeOn(sixth.ID)) > 0 })
			n.again("") // the marks are taken in again
			n.says("and now?")
			n.hears(botB, "and now?")
			if got := botB.given(third.ID); got != 1 {
				t.Errorf("BotB was given what was released %d times", got)
			}
			n.eachOnce(botA, sixth.ID)
		})
	}
}

func (b *sdkBot) given(id string) (times int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.all {
		if h.ID == id {
			times++
		}
	}
	return times
}
