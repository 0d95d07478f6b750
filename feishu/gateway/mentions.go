package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/mention"
	"feishu-relay/relay"
)

const (
	rosterWait  = time.Second      // for the names of a chat that were never asked; then the send passes as it is
	rosterFresh = 10 * time.Minute // then they are asked again while they are used
	rosterRetry = time.Minute      // after Feishu did not tell them
	maxRosters  = 500              // chats
)

// roster is who can be mentioned in a chat, by their names.
type roster struct {
	names *mention.Directory // by open_id; nil: Feishu did not tell
	next  time.Time          // when it is asked again
}

// rosterOf returns the names of a chat; nil where Feishu has not told them in time.
func (g *Gateway) rosterOf(chat relay.ChatID) *mention.Directory {
	known, ok := g.rosters.Get(chat)
	if ok && !time.Now().After(known.next) {
		return known.names
	}
	answered := g.askNames("roster", chat, func(ctx context.Context) { g.askRoster(ctx, chat) })
	if ok {
		return known.names // until it is answered
	}
	select {
	case <-answered:
	case <-time.After(rosterWait):
	}
	if known, ok = g.rosters.Get(chat); !ok {
		return nil
	}
	return known.names
}

func (g *Gateway) askRoster(ctx context.Context, chat relay.ChatID) {
	now := &roster{next: time.Now().Add(rosterRetry)}
	defer func() { // also where it panics
		if old, ok := g.rosters.Get(chat); ok && now.names == nil {
			now.names = old.names
		}
		g.rosters.Add(chat, now)
	}()
	names, told := g.askMentionable(ctx, chat)
	now.names = names
	if told {
		now.next = time.Now().Add(rosterFresh)
	}
}

// askMentionable asks Feishu for a chat's people and bots. Where it does not tell the bots,
// those that this app has met count. told is false where Feishu did not answer.
func (g *Gateway) askMentionable(ctx context.Context, chat relay.ChatID) (names *mention.Directory, told bool) {
	people, err := g.peopleOf(ctx, chat, "open_id")
	if err != nil {
		g.log.Warn("the members of a chat are not known: plain names stay plain", "chat", chat, "err", err)
	}
	bots, botsErr := g.botsOf(ctx, chat)
	if botsErr != nil {
		g.log.Debug("the bots of a chat are not known; those met before are used", "chat", chat, "err", botsErr)
		bots = g.opts.Book.Bots()
	}
	_, refused := errors.AsType[*feishu.CodeError](err)
	told = err == nil || refused // it lacks a scope, say, which comes with a new version of the app
	if err != nil && len(bots) == 0 {
		return nil, told
	}
	var all []mention.Agent
	for id, name := range people {
		if strings.HasPrefix(id, "ou_") && relay.CheckID(id) == nil {
			all = append(all, mention.Agent{ID: id, Names: []string{name}})
		}
	}
	self := g.opts.Book.Self()
	for _, b := range bots {
		if known, ok := g.opts.Book.Bot(b.OpenID); ok {
			b.Agent = known.Agent
		}
		if strings.HasPrefix(string(b.OpenID), "ou_") && b.OpenID != self.OpenID {
			all = append(all, mention.Agent{ID: string(b.OpenID), Names: []string{b.Name, string(b.Agent)}})
		}
	}
	return mention.NewDirectory(all), told
}

// withMentions returns the body of a send with real mentions in the place of plain names; nil
// where it stays as it is.
func (g *Gateway) withMentions(t *tapped) (changed []byte) {
	defer g.caught("mentions") // which leaves nil
	if !g.opts.RewriteMentions || t.op != opCreate && t.op != opReply || !g.own.trusts(t.token) ||
		t.http.Header.Get("Content-Encoding") != "" {
		return nil
	}
	req := t.sendRequest()
	chat := g.recent.chatOf(t.message)
	if t.op == opCreate {
		if t.http.URL.Query().Get("receive_id_type") != "chat_id" {
			return nil
		}
		chat = relay.ChatID(req.ReceiveID)
	}
	if chat == "" || g.opts.Book.Chat(chat).Kind != feishu.ChatGroup {
		return nil
	}
	var names *mention.Directory
	find := func(text string) (found []feishu.Named) {
		if !strings.ContainsAny(text, "@＠") {
			return nil
		}
		if names == nil {
			if names = g.rosterOf(chat); names == nil {
				names = noNames
			}
		}
		for _, h := range names.Plain(text) {
			who, _ := g.opts.Book.Name(h.Agent)
			found = append(found, feishu.Named{From: h.From, To: h.To, OpenID: relay.OpenID(h.Agent), Name: who.Name})
		}
		return found
	}
	content, ok := feishu.WithMentions(req.MsgType, req.Content, find)
	if !ok {
		return nil
	}
	from, to, err := feishu.Member(t.request, "content")
	var there string
	if err != nil || json.Unmarshal(t.request[from:to], &there) != nil || there != req.Content {
		return nil
	}
	value, err := relay.Marshal(content)
	if err != nil {
		return nil
	}
	changed = slices.Concat(t.request[:from], value, t.request[to:])
	if !t.held.take(len(changed)) {
		return nil
	}
	return changed
}

var noNames = mention.NewDirectory(nil)

// refusedContents are the codes by which Feishu refuses a message for its content: mentions in
// it may be why (docs/feishu.md 6.2).
var refusedContents = []int{230001, 230025, 230099, 99992351, 99992352, 99992402, 41012, 41050}

// mentioning sends a changed message, and where Feishu refuses that for its content, the one
// that the bot wrote.
type mentioning struct {
	g    *Gateway
	next http.RoundTripper
}

func (m mentioning) RoundTrip(r *http.Request) (*http.Response, error) {
	t, _ := r.Context().Value(tappedKey{}).(*tapped)
	if t == nil || t.changed == nil {
		return m.next.RoundTrip(r)
	}
	resp, err := m.next.RoundTrip(withBody(r, t.changed))
	if err != nil || !t.refusedFor(resp) {
		if r.Body != nil {
			_ = r.Body.Close() // it was read before
		}
		t.request = t.changed
		if err == nil && resp.StatusCode < http.StatusMultipleChoices {
			m.g.count(countedMentionWritten)
		}
		return resp, err
	}
	_ = resp.Body.Close()
	m.g.count(countedMentionRefused)
	m.g.log.Info("Feishu refused rewritten mentions; sending the message as the bot wrote it", "message_id", t.message)
	return m.next.RoundTrip(r)
}

// withBody is r with another body.
func withBody(r *http.Request, data []byte) *http.Request {
	out := r.WithContext(r.Context())
	out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	out.Body, _ = out.GetBody()
	out.ContentLength, out.TransferEncoding, out.Trailer = int64(len(data)), nil, nil
	return out
}

// refusedFor reports whether Feishu refuses a message for its content. The answer can be read
// again.
func (t *tapped) refusedFor(resp *http.Response) bool {
	if resp.StatusCode != http.StatusBadRequest {
		return false
	}
	raw, whole, err := t.held.readUpTo(resp.Body, resp.ContentLength, smallBody)
	resp.Body = again(resp.Body, raw, whole, err)
	if err != nil || !whole {
		return false
	}
	data, err := t.held.unpack(resp.Header.Get("Content-Encoding"), raw)
	var answer struct {
		Code int `json:"code"`
	}
	return err == nil && json.Unmarshal(data, &answer) == nil && slices.Contains(refusedContents, answer.Code)
}
