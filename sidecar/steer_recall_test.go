//go:build unix

package sidecar_test

import (
	"bufio"
	"encoding/json"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"
	mcp "github.com/modelcontextprotocol/go-sdk/mcp"

	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/test/larktest"
	"feishu-relay/internal/test/redistest"
	"feishu-relay/sidecar"
)

// reader reads GET /v1/stream or /v1/events of a sidecar until leave is called.
type reader struct {
	mu    sync.Mutex
	lines []string
	leave func()
}

func (n *tenant) reads(s *running, path, lastID string) *reader {
	n.t.Helper()
	req, err := http.NewRequestWithContext(n.t.Context(), "GET", "http://"+s.Addr().String()+path, nil)
	must(n.t, err)
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := http.DefaultClient.Do(req)
	must(n.t, err)
	r, done := &reader{}, make(chan struct{})
	go func() {
		defer close(done)
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			r.mu.Lock()
			r.lines = append(r.lines, lines.Text())
			r.mu.Unlock()
		}
	}()
	r.leave = sync.OnceFunc(func() {
		_ = resp.Body.Close()
		<-done
	})
	n.t.Cleanup(r.leave)
	return r
}

func (r *reader) has(text string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Contains(strings.Join(r.lines, "\n"), text)
}

// forgets waits until the events of a sidecar, read from the start, show that a message was recalled and not its text.
func (n *tenant) forgets(s *running, id, text string) {
	n.t.Helper()
	n.until("the events, read again, show the recall alone", func() bool {
		again := n.reads(s, "/v1/events", "0")
		defer again.leave()
		n.until("the recall comes again", func() bool {
			again.mu.Lock()
			defer again.mu.Unlock()
			return slices.ContainsFunc(again.lines, func(line string) bool {
				return strings.Contains(line, `"type":"recall"`) && strings.Contains(line, id)
			})
		})
		return !again.has(text)
	})
}

// holding lists the files of some folders that hold a text.
func (n *tenant) holding(text string, folders ...string) (files []string) {
	n.t.Helper()
	err := filepath.WalkDir(n.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // a temporary file is gone
		}
		for _, folder := range folders {
			if data, err := os.ReadFile(path); err == nil && strings.Contains(path, "/"+folder+"/") && strings.Contains(string(data), text) {
				files = append(files, path)
				break
			}
		}
		return nil
	})
	must(n.t, err)
	return files
}

// shownOf is a message as GET /v1/transcripts shows it.
func (n *tenant) shownOf(s *running, id string) (e struct {
	Content          string
	Recalled, Edited bool
	Depth            int
}) {
	n.t.Helper()
	var page struct{ Entries []json.RawMessage }
	_, body := n.asks(s, "GET", "/v1/transcripts/feishu/"+n.chat, "")
	must(n.t, json.Unmarshal(body, &page))
	for _, line := range page.Entries {
		var named struct {
			MessageID string `json:"message_id"`
		}
		must(n.t, json.Unmarshal(line, &named))
		if named.MessageID == id {
			must(n.t, json.Unmarshal(line, &e))
		}
	}
	return e
}

// waits reports how many messages wait for a sidecar's bot.
func (n *tenant) waits(s *running) int {
	return int(series(n.metrics(s), "feishu_relay_undelivered_messages"))
}

// threeReaders is a group of a bot that speaks, one on the SDK, and one that reads the stream.
func threeReaders(t *testing.T, redis string) (n *tenant, a, b, c *running, botA, botB *sdkBot, cfgC sidecar.Config) {
	t.Helper()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	must(t, os.WriteFile(filepath.Join(n.dir, "groups.json"), []byte(`{"groups":{"`+n.chat+
		`":{"members":["agent_a","agent_b","agent_c"]}}}`), 0o600))
	config := func(agent string) sidecar.Config {
		cfg := n.steeredAPI(agent, redis)
		if agent != "agent_c" {
			cfg.Gateway = n.config(agent).Gateway
		}
		cfg.Limits.MaxDepth = 9
		cfg.Limits.Threshold = 9
		return cfg
	}
	cfgC = config("agent_c")
	a, b, c = n.start(config("agent_a")), n.start(config("agent_b")), n.start(cfgC)
	botA, botB = n.bots(apps, a, b)
	botA.introduce(t)
	botB.introduce(t)
	n.says("hello")
	n.hears(botA, "hello")
	n.hears(botB, "hello")
	n.until("all know each other", func() bool { return len(n.group(c, n.chat).Bots) == 3 })
	return n, a, b, c, botA, botB, cfgC
}

// The text of a recalled message is gone, whoever recalled it and when: nobody is given it, and
// nobody is shown it any more. The count of replies goes on over it.
func TestRecalled(t *testing.T) {
	for name, redis := range map[string]func(*testing.T) string{"file": func(*testing.T) string { return "" },
		"redis": func(t *testing.T) string { return redistest.Start(t).URL() }} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, a, b, c, botA, botB, cfgC := threeReaders(t, redis(t))
			everybody := []*running{a, b, c}
			gone := func(id, text string) {
				t.Helper()
				for _, s := range everybody {
					n.until("it is recalled everywhere", func() bool { return n.shownOf(s, id).Recalled })
					if e := n.shownOf(s, id); e.Content != "" || e.Depth != 1 {
						t.Errorf("it is shown as %+v", e)
					}
					if _, body := n.asks(s, "GET", "/v1/transcripts/feishu/"+n.chat+"?q="+text, ""); strings.Contains(string(body), text) {
						t.Errorf("a search finds %s", body)
					}
				}
				n.until("no transcript has it", func() bool { return n.holding(text, "transcripts") == nil })
				if read := n.readsTranscript(c); strings.Contains(read, text) || !strings.Contains(read, id) {
					t.Errorf("MCP shows %s", read)
				}
			}
			last := n.says("please begin")
			n.hears(botA, "please begin")
			events := n.reads(c, "/v1/events", "")
			stream := n.reads(c, "/v1/stream", "")
			say := func(text string) string {
				t.Helper()
				n.reply(botA, heard{ID: last}, "", text)
				return n.sees(text).ID
			}

			// After it was delivered, by the bot.
			id := say("kiwi one")
			n.hears(botB, "kiwi one")
			n.until("the stream has it", func() bool { return stream.has("kiwi one") })
			must(t, n.Recall(id))
			gone(id, "kiwi")
			n.until("the viewer is told", func() bool { return events.has(`"type":"recall"`) })
			n.forgets(c, id, "kiwi")
			n.until("no copy has it", func() bool { return n.holding("kiwi", "processed", "deliveries", "held") == nil })
			stream.leave()
			n.until("it left", func() bool { return series(n.metrics(c), `feishu_relay_door_connected{door="stream"}`) == 0 })

			// While it waits for a bot, by a person who may; what is behind it follows.
			id = say("lemon two")
			n.hears(botB, "lemon two")
			n.until("it waits", func() bool { return n.waits(c) == 1 })
			must(t, n.RecallBy(id, n.user.ID))
			n.until("it is withdrawn", func() bool { return n.stops(c, "recalled") == 1 && n.waits(c) == 0 })
			gone(id, "lemon")

			// While the sidecar is not running.
			c.stop()
			id = say("mango three")
			n.hears(botB, "mango three")
			must(t, n.Recall(id))
			n.until("B knows", func() bool { return n.shownOf(b, id).Recalled })
			c = n.start(cfgC)
			everybody[2] = c
			stream = n.reads(c, "/v1/stream", "")
			n.until("it stops", func() bool { return n.stops(c, "recalled") == 1 })
			gone(id, "mango")
			say("orange four")
			n.until("the next is delivered", func() bool { return stream.has("orange four") })
			for _, text := range []string{"kiwi", "lemon", "mango"} {
				if stream.has(text) {
					t.Errorf("the stream shows %s", text)
				}
			}
			stream.leave()
		})
	}
}

// readsTranscript is the group's transcript as the MCP tool shows it.
func (n *tenant) readsTranscript(s *running) string {
	n.t.Helper()
	client := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := client.Connect(n.t.Context(), &mcp.StreamableClientTransport{Endpoint: "http://" + s.Addr().String() + "/mcp"}, nil)
	must(n.t, err)
	defer session.Close()
	result, err := session.CallTool(n.t.Context(), &mcp.CallToolParams{Name: "read_transcript", Arguments: map[string]any{"chat_id": n.chat}})
	must(n.t, err)
	text, err := json.Marshal(result)
	must(n.t, err)
	return string(text)
}

// The text of a recalled command, and the answer to it, is gone for all who read.
func TestRecalledCommand(t *testing.T) {
	t.Parallel()
	n, _, a, b, _, _ := steeredPair(t, asIs)
	id := n.says("/relay pasuword")
	n.repliesTo(id)
	for _, s := range []*running{a, b} {
		n.until("the answer is shown", func() bool {
			return strings.Count(n.get(s, "/v1/transcripts/feishu/"+n.chat), "pasuword") > 1
		})
	}
	must(t, n.Recall(id))
	n.until("no file has it", func() bool { return n.holding("pasuword", "transcripts") == nil })
	for _, s := range []*running{a, b} {
		n.forgets(s, id, "pasuword")
		if found := n.get(s, "/v1/transcripts/feishu/"+n.chat+"?q=pasuword"); strings.Contains(found, "pasuword") {
			t.Errorf("a search finds %s", found)
		}
	}
}

// What is recalled in a private chat is nobody else's.
func TestPrivateRecallsStayHere(t *testing.T) {
	t.Parallel()
	n, _, _, _, botA, _ := steeredPair(t, asIs)
	id, err := n.SayPrivate(botA.app.ID, n.user.ID, "between us")
	must(t, err)
	h := n.hears(botA, "between us")
	must(t, n.Recall(id))
	group := n.says("for all")
	must(t, n.Recall(group))
	side := ""
	n.until("the group's recall is shared", func() bool {
		data, err := os.ReadFile(filepath.Join(n.dir, "relay", "side", "side.jsonl"))
		side = string(data)
		return err == nil && strings.Contains(side, group)
	})
	if strings.Contains(side, h.Chat) || strings.Contains(side, id) {
		t.Errorf("the private chat is shared: %s", side)
	}
}

// A bot edits a text that was relayed: readers see what it says now, also after a restart, and a
// bot that has not been given it gets it so. Who has it is not told a second time, since it says the same.
func TestRelayedTextIsEdited(t *testing.T) {
	t.Parallel()
	n, a, b, c, botA, botB, cfgC := threeReaders(t, "")
	n.reply(botA, heard{ID: n.says("what is it?")}, "", "first words")
	id := n.hears(botB, "first words").ID
	n.until("it waits for the third bot", func() bool { return n.waits(c) > 0 && n.shownOf(c, id).Content == "first words" })
	for _, text := range []string{"first words?", "First words!"} {
		_, err := larktest.Taken(botA.client.Im.V1.Message.Update(t.Context(), larkim.NewUpdateMessageReqBuilder().MessageId(id).
			Body(larkim.NewUpdateMessageReqBodyBuilder().MsgType("text").Content(quoted("text", text)).Build()).Build()))
		must(t, err)
	}
	everybody := []*running{a, b, c}
	for _, s := range everybody {
		n.until("readers see the edit", func() bool {
			e := n.shownOf(s, id)
			return e.Content == "First words!" && e.Edited && e.Depth == 1
		})
		if !strings.Contains(n.readsTranscript(s), "First words!") {
			t.Error("MCP does not show the edit")
		}
	}
	stream := n.reads(c, "/v1/stream", "")
	n.until("it is delivered as it is now", func() bool { return stream.has("First words!") })
	if stream.has("first words") || stream.has("first words?") {
		t.Errorf("the stream has %q", stream.lines)
	}
	c.stop()
	c = n.start(cfgC)
	n.until("it knows the group", func() bool { return len(n.group(c, n.chat).Bots) == 3 })
	n.until("readers see the edit after a restart", func() bool { return n.shownOf(c, id).Content == "First words!" })
	n.reply(botA, heard{ID: n.says("and now?")}, "", "that is all")
	n.hears(botB, "that is all")
	botB.mu.Lock()
	defer botB.mu.Unlock()
	if slices.ContainsFunc(botB.all, func(h heard) bool { return strings.Contains(h.Text, "First words!") }) {
		t.Errorf("BotB was told of the edit: %+v", botB.all)
	}
}
