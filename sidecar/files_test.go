//go:build unix

package sidecar_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"feishu-relay/internal/feishusim"
	"feishu-relay/internal/test/larktest"
)

var png = append([]byte("\x89PNG\r\n\x1a\n"), bytes.Repeat([]byte{7}, 100_000)...)

// uploads uploads a picture as bots do, and returns its key.
func (n *tenant) uploads(b *sdkBot, data []byte) string {
	n.t.Helper()
	made, err := larktest.Taken(b.client.Im.V1.Image.Create(n.t.Context(), larkim.NewCreateImageReqBuilder().
		Body(larkim.NewCreateImageReqBodyBuilder().ImageType("message").Image(bytes.NewReader(data)).Build()).Build()))
	must(n.t, err)
	return *made.Data.ImageKey
}

// sends lets a bot send a message, and returns its id.
func (n *tenant) sends(b *sdkBot, msgType, content string) string {
	n.t.Helper()
	resp, err := larktest.Taken(b.client.Im.Message.Create(n.t.Context(), larkim.NewCreateMessageReqBuilder().ReceiveIdType("chat_id").
		Body(larkim.NewCreateMessageReqBodyBuilder().ReceiveId(n.chat).MsgType(msgType).Content(content).Build()).Build()))
	must(n.t, err)
	return *resp.Data.MessageId
}

// saysFile puts a file of the person into a chat, and returns its key and the message's id.
func (n *tenant) saysFile(u feishusim.Utterance, name string, data []byte) (key, id string) {
	n.t.Helper()
	key = n.AddFile(name, data)
	u.User, u.File = n.user.ID, key
	id, err := n.Post(u)
	must(n.t, err)
	return key, id
}

type shownFile struct{ Key, Type, Name string }

type shownLine struct {
	MessageID string `json:"message_id"`
	Files     []shownFile
}

// filesOf waits until the sidecar's transcript of the group has a message, and returns the
// files of its line.
func (n *tenant) filesOf(s *running, id string) (files []shownFile) {
	n.t.Helper()
	n.until("the transcript has "+id, func() bool {
		var page struct{ Entries []shownLine }
		must(n.t, json.Unmarshal([]byte(n.get(s, "/v1/transcripts/feishu/"+n.chat)), &page))
		i := slices.IndexFunc(page.Entries, func(e shownLine) bool { return e.MessageID == id })
		if i >= 0 {
			files = page.Entries[i].Files
		}
		return i >= 0
	})
	return files
}

// fetched is the answer of the route for files.
type fetched struct {
	status int
	header http.Header
	body   []byte
	err    error // of the body
}

func (n *tenant) fetch(s *running, message, key string) fetched {
	n.t.Helper()
	resp, err := http.Get("http://" + s.Addr().String() + "/v1/messages/" + message + "/files/" + key)
	must(n.t, err)
	defer resp.Body.Close()
	f := fetched{status: resp.StatusCode, header: resp.Header}
	f.body, f.err = io.ReadAll(resp.Body)
	return f
}

// refused checks that a file is not handed out, and why.
func (n *tenant) refused(s *running, message, key string, status int, code string) {
	n.t.Helper()
	got := n.fetch(s, message, key)
	var body struct {
		Error struct{ Code, Message string }
	}
	if err := json.Unmarshal(got.body, &body); err != nil || got.status != status || body.Error.Code != code || body.Error.Message == "" {
		n.t.Errorf("%s of %s: got %d %s, want %d %s", key, message, got.status, got.body, status, code)
	}
}

// getFile calls the tool of that name.
func (n *tenant) getFile(s *running, message, key string) *mcp.CallToolResult {
	n.t.Helper()
	ctx := limited(n.t)
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).
		Connect(ctx, &mcp.StreamableClientTransport{Endpoint: "http://" + s.Addr().String() + "/mcp"}, nil)
	must(n.t, err)
	defer session.Close()
	result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "get_file", Arguments: map[string]any{"message_id": message, "key": key}})
	must(n.t, err)
	return result
}

func resourceOf(r *mcp.CallToolResult) *mcp.ResourceContents {
	for _, c := range r.Content {
		if e, ok := c.(*mcp.EmbeddedResource); ok && !r.IsError {
			return e.Resource
		}
	}
	return &mcp.ResourceContents{}
}

// queuedLine is what a line of a queue, or a message posted to a bot, says of files.
type queuedLine struct {
	Metadata struct {
		MediaKeys []string `json:"media_keys"`
		Files     []shownFile
	}
}

// queued are the lines of a queue, as far as they are written.
func (n *tenant) queued(queue string) (lines []queuedLine) {
	data, err := os.ReadFile(filepath.Join(n.dir, "relay", queue+".jsonl"))
	if err != nil {
		return nil // not yet
	}
	for text := range strings.Lines(string(data)) {
		var line queuedLine
		if json.Unmarshal([]byte(text), &line) == nil {
			lines = append(lines, line)
		}
	}
	return lines
}

// A bot sends a picture and a person a document; the other bot fetches both, by the route
// and by the tool, with nothing but its sidecar.
func TestFilesOfMessages(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	_, old := n.saysFile(feishusim.Utterance{Chat: n.chat}, "old.png", png)
	a, b := n.start(n.config("agent_a")), n.start(n.config("agent_b"))
	botA := n.bot(apps[0], "http://"+a.Gateway().String(), nil)
	botB := n.bot(apps[1], "http://"+b.Gateway().String(), nil)
	botA.introduce(t)
	botB.introduce(t)
	n.connected(a)
	n.connected(b)

	imageKey := n.uploads(botA, png)
	image := n.sends(botA, "image", `{"image_key":"`+imageKey+`"}`)
	if got, want := n.filesOf(b, image), []shownFile{{imageKey, "image", ""}}; !slices.Equal(got, want) {
		t.Errorf("the bot's picture is listed as %v, want %v", got, want)
	}
	page := []byte("<script>alert(1)</script>")
	docKey, doc := n.saysFile(feishusim.Utterance{Chat: n.chat}, "报告/1.html", page)
	if got, want := n.filesOf(b, doc), []shownFile{{docKey, "file", "报告/1.html"}}; !slices.Equal(got, want) {
		t.Errorf("the person's document is listed as %v, want %v", got, want)
	}

	got := n.fetch(b, image, imageKey)
	if got.status != 200 || !bytes.Equal(got.body, png) {
		t.Errorf("the picture: %d, %d bytes, %v", got.status, len(got.body), got.err)
	}
	for name, want := range map[string]string{"Content-Type": "image/png", "Content-Disposition": "attachment; filename=unknown-file", // the SDK's name for it
		"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"} {
		if v := got.header.Get(name); v != want {
			t.Errorf("the picture: %s is %q, want %q", name, v, want)
		}
	}
	got = n.fetch(b, doc, docKey)
	if got.status != 200 || !bytes.Equal(got.body, page) || got.header.Get("Content-Type") != "application/octet-stream" ||
		got.header.Get("Content-Disposition") != "attachment; filename*=utf-8''"+url.PathEscape("报告")+"_1.html" {
		t.Errorf("the document: %d %v %q", got.status, got.header, got.body)
	}
	key := n.pictureIn(old)
	if got := n.fetch(b, old, key); got.status != 200 || !bytes.Equal(got.body, png) {
		t.Errorf("what was sent before the sidecar: %d %.200s", got.status, got.body)
	}

	tool := resourceOf(n.getFile(b, image, imageKey))
	if tool.MIMEType != "image/png" || !bytes.Equal(tool.Blob, png) {
		t.Errorf("the picture by the tool: %s, %d bytes", tool.MIMEType, len(tool.Blob))
	}
	if tool := resourceOf(n.getFile(b, doc, docKey)); tool.MIMEType != "application/octet-stream" || !bytes.Equal(tool.Blob, page) {
		t.Errorf("the document by the tool: %s %q", tool.MIMEType, tool.Blob)
	}
	for queue, want := range map[string]shownFile{"outbound": {imageKey, "image", ""}, "inbound": {docKey, "file", "报告/1.html"}} {
		n.until("the queue "+queue+" has the message", func() bool {
			for _, line := range n.queued(queue) {
				if m := line.Metadata; slices.Equal(m.Files, []shownFile{want}) && slices.Equal(m.MediaKeys, []string{want.Key}) {
					return true
				}
			}
			return false
		})
	}
}

// pictureIn is the key in a picture that a person sent.
func (n *tenant) pictureIn(id string) string {
	n.t.Helper()
	m, ok := n.Message(id)
	var content struct {
		Key string `json:"image_key"`
	}
	if !ok || json.Unmarshal([]byte(m.Content), &content) != nil {
		n.t.Fatalf("no picture %s", id)
	}
	return content.Key
}

// A program that is posted its messages finds the files in the metadata of bots' and people's.
func TestFilesAreNamedToTheBot(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotC"})
	_, botA := n.behind(apps[0], n.config("agent_a"), nil)
	botA.introduce(t)
	c, botC := n.connector(apps[1], asIs)
	named := func(want shownFile) {
		t.Helper()
		var in queuedLine
		select {
		case posted := <-botC.heard:
			data, err := json.Marshal(posted)
			must(t, err)
			must(t, json.Unmarshal(data, &in))
		case <-limited(t).Done():
			t.Fatal("the program was posted nothing")
		}
		if m := in.Metadata; !slices.Equal(m.Files, []shownFile{want}) || !slices.Equal(m.MediaKeys, []string{want.Key}) {
			t.Errorf("the program was posted %+v, want %v", m, want)
		}
	}
	key, id := n.saysFile(feishusim.Utterance{Chat: n.chat}, "a.txt", []byte("hello"))
	named(shownFile{key, "file", "a.txt"})
	if got := n.fetch(c, id, key); got.status != 200 || string(got.body) != "hello" {
		t.Errorf("the person's file: %d %s", got.status, got.body)
	}
	picture := n.uploads(botA, png)
	n.sends(botA, "post", `{"zh_cn":{"content":[[{"tag":"text","text":"see "},{"tag":"img","image_key":"`+picture+`"}]]}}`)
	named(shownFile{picture, "image", ""})
}

func TestFilesThatAreNotHandedOut(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotA"}, feishusim.App{Name: "BotB"})
	cfg := n.config("agent_b")
	cfg.FileMax = 1000
	b := n.start(cfg)

	small := []byte("\x89PNG\r\n\x1a\n")
	key, picture := n.saysFile(feishusim.Utterance{Chat: n.chat}, "small.png", small)
	n.refused(b, picture, key, 503, "no_credentials")
	botB := n.bot(apps[1], "http://"+b.Gateway().String(), nil)
	botB.introduce(t)
	n.connected(b)
	if got := n.fetch(b, picture, key); got.status != 200 || !bytes.Equal(got.body, small) {
		t.Fatalf("the picture: %d %s", got.status, got.body)
	}

	key, picture = n.saysFile(feishusim.Utterance{Chat: n.chat}, "small.png", small)
	n.filesOf(b, picture)
	n.refused(b, picture, "img_v3_other", 404, "unknown_file")
	n.refused(b, "om_nothing", key, 404, "unknown_message")
	n.refused(b, "nothing", key, 404, "unknown_message")
	elsewhere := n.AddGroup("Elsewhere", n.user.ID, apps[0].ID).ID
	otherKey, other := n.saysFile(feishusim.Utterance{Chat: elsewhere}, "b.png", small)
	n.refused(b, other, otherKey, 404, "unknown_message")
	privateKey, private := n.saysFile(feishusim.Utterance{App: apps[1].ID}, "c.png", small)
	n.refused(b, private, privateKey, 404, "unknown_message")

	largeKey, large := n.saysFile(feishusim.Utterance{Chat: n.chat}, "large.png", png)
	n.filesOf(b, large)
	n.refused(b, large, largeKey, 413, "too_large")
	if r := n.getFile(b, large, largeKey); !r.IsError || !strings.Contains(r.Content[0].(*mcp.TextContent).Text, "FILE_MAX") {
		t.Errorf("a large file by the tool: %+v", r)
	}

	const resources = "GET /open-apis/im/v1/messages/*/resources/*"
	n.Fault(feishusim.Fault{Kind: feishusim.FaultAnswer, Route: resources, Code: 234037, Count: 1})
	n.refused(b, picture, key, 413, "too_large")
	n.Fault(feishusim.Fault{Kind: feishusim.FaultAnswer, Route: resources, Code: 99991672, Count: 1})
	n.refused(b, picture, key, 502, "feishu_refused")
	n.Fault(feishusim.Fault{Kind: feishusim.FaultAnswer, Route: resources, Status: 500, Count: 1})
	n.refused(b, picture, key, 502, "feishu_unavailable")
	n.RevokeTokens(apps[1].ID) // the sidecar fetches another, as the bot did
	if got := n.fetch(b, picture, key); got.status != 200 {
		t.Errorf("with a new token: %d %s", got.status, got.body)
	}

	must(t, n.Recall(picture))
	n.refused(b, picture, key, 410, "recalled")
	if r := n.getFile(b, picture, key); !r.IsError || !strings.Contains(r.Content[0].(*mcp.TextContent).Text, "recalled") {
		t.Errorf("a recalled message by the tool: %+v", r)
	}
	// Feishu may say of a recalled message only that the file is not in it.
	n.Fault(feishusim.Fault{Kind: feishusim.FaultAnswer, Route: resources, Code: 234003, Count: 1})
	n.refused(b, picture, key, 410, "recalled")
	oldKey, old := n.saysFile(feishusim.Utterance{Chat: n.chat}, "d.png", small)
	must(t, n.Recall(old))
	n.refused(b, old, oldKey, 410, "recalled")
}

// What the sidecars know as recalled is handed out no more, though Feishu still has it.
func TestFilesOfWhatWasRecalled(t *testing.T) {
	t.Parallel()
	n, apps := newTenant(t, feishusim.Options{}, feishusim.App{Name: "BotB"})
	b, botB := n.behind(apps[0], n.steered("agent_b"), nil)
	botB.introduce(t)
	key, picture := n.saysFile(feishusim.Utterance{Chat: n.chat}, "small.png", png[:1000])
	n.until("it is handed out", func() bool {
		return n.fetch(b, picture, key).status == http.StatusOK && len(n.filesOf(b, picture)) == 1
	})
	queue := queueEnd{path: filepath.Join(n.dir, "relay", "outbound.jsonl")}
	must(t, queue.put(t.Context(), "side", fmt.Sprintf(`{"channel":"feishu","chat_id":%q,"agent":"operator",`+
		`"records":[{"kind":"recall","of":%q,"ts":%d}]}`+"\n", n.chat, picture, time.Now().UnixMilli())))
	n.until("it is recalled", func() bool { return n.shownOf(b, picture).Recalled })
	n.refused(b, picture, key, http.StatusGone, "recalled")
}
