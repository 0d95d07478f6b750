package gateway

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"feishu-relay/feishu"
	"feishu-relay/feishu/content"
	"feishu-relay/feishu/peerchat"
	"feishu-relay/mention"
	"feishu-relay/relay"
)

const (
	rosterWait  = time.Second      // for names that Feishu was not asked for before; then the send passes unchanged
	rosterFresh = 10 * time.Minute // then Feishu is asked again, if the names are used
	rosterRetry = time.Minute      // after Feishu did not return them
	maxRosters  = 500              // chats
)

// roster is who can be mentioned in a chat, by their names.
type roster struct {
	names   *mention.Directory // by open_id; nil: Feishu did not return them
	next    time.Time          // when it is asked again
	renamed uint64             // of the book: a bot with another name or id is asked about at once
}

// rosterOf returns the names of a chat; nil if Feishu has not returned them in time.
func (g *Gateway) rosterOf(chat relay.ChatID) *mention.Directory {
	known, ok := g.rosters.Get(chat)
	ok = ok && known.renamed == g.opts.Book.Renamed()
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

// askRoster asks Feishu for a chat's people and bots. If it does not return the bots, those that were met before count.
func (g *Gateway) askRoster(ctx context.Context, chat relay.ChatID) {
	now := &roster{next: time.Now().Add(rosterRetry)}
	defer func() { // also where it panics
		if old, ok := g.rosters.Get(chat); ok && now.names == nil {
			now.names = old.names
		}
		now.renamed = g.opts.Book.Renamed()
		g.rosters.Add(chat, now)
	}()
	people, err := g.peopleOf(ctx, chat, "open_id")
	if err != nil {
		g.log.Warn("the members of a chat are not known: plain names stay plain", "chat", chat, "err", err)
	}
	bots, botsErr := g.botsOf(ctx, chat)
	if botsErr != nil {
		g.log.Debug("the bots of a chat are not known; those met before are used", "chat", chat, "err", botsErr)
		bots = g.opts.Book.Bots()
	}
	if err == nil || feishu.CodeOf(err) != 0 { // it lacks a scope, say, which comes with a new version of the app
		now.next = time.Now().Add(rosterFresh)
	}
	if err != nil && len(bots) == 0 {
		return
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
	now.names = mention.NewDirectory(all)
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
	names := sync.OnceValue(func() *mention.Directory { return cmp.Or(g.rosterOf(chat), mention.NewDirectory(nil)) })
	find := func(text string) (found []content.Named) {
		if !strings.ContainsAny(text, "@＠") {
			return nil
		}
		for _, h := range names().Plain(text) {
			who, _ := g.opts.Book.Name(h.Agent)
			found = append(found, content.Named{From: h.From, To: h.To, OpenID: relay.OpenID(h.Agent), Name: who.Name})
		}
		return found
	}
	changedContent, ok := content.Rewrite(req.MsgType, req.Content, find)
	if !ok {
		return nil
	}
	from, to, err := feishu.Member(t.request, "content")
	var there string
	if err != nil || json.Unmarshal(t.request[from:to], &there) != nil || there != req.Content {
		return nil
	}
	value, err := relay.Marshal(changedContent)
	if err != nil {
		return nil
	}
	changed = slices.Concat(t.request[:from], value, t.request[to:])
	if !t.held.take(len(changed)) {
		return nil
	}
	return changed
}

// refusedContents are the codes by which Feishu refuses a message for its content: mentions in
// it may be why (docs/feishu.md 6.2).
var refusedContents = []int{230001, 230025, 230099, 99992351, 99992352, 99992402, 41012, 41050}

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
	if err == nil {
		_, err = feishu.ReadAnswer[struct{}](data)
	}
	return slices.Contains(refusedContents, feishu.CodeOf(err))
}

// askNamesAgain is how long a chat is not asked again for an id that neither its
// bots nor its members have.
const askNamesAgain = 10 * time.Minute

// named fills in what is known of those that are mentioned.
func (g *Gateway) named(mentions []feishu.Mention) []feishu.Mention {
	out := slices.Clone(mentions)
	for i := range out {
		m := &out[i]
		bot, isBot := g.opts.Book.Bot(m.OpenID)
		m.AppID = cmp.Or(m.AppID, bot.AppID)
		for _, id := range m.IDs() {
			who, _ := g.opts.Book.Name(id)
			m.Name = cmp.Or(m.Name, who.Name, string(who.Agent))
			isBot = isBot || who.Agent != ""
		}
		if isBot && m.OpenID != "" {
			m.Type = cmp.Or(m.Type, feishu.SenderBot)
		}
	}
	return out
}

// asWritten sets m's content to what the bot wrote, if that mentions a bot by an id that the sidecar has made up:
// Feishu does not know the id, and leaves it out of its answer.
func (g *Gateway) asWritten(m *feishu.Message, t *tapped) {
	if !bytes.Contains(t.request, []byte("ou_")) && !bytes.Contains(t.request, []byte(`\u00`)) {
		return // it names no open_id, nor an escaped one
	}
	written := t.sendRequest().Content
	for _, one := range content.Parse(m.Type, written, nil).Mentions() {
		if slices.ContainsFunc(m.Mentions, func(o feishu.Mention) bool { return o.Same(&one) }) {
			continue
		}
		if who, _ := g.opts.Book.Name(string(one.OpenID)); who.Agent != "" {
			m.Content, m.Mentions = written, append(m.Mentions, one)
		}
	}
}

// unnamed returns the ids that out mentions and whose names are unknown.
func (g *Gateway) unnamed(out *Sent) []string {
	var ids []string
	for _, m := range g.named(out.Mentions) {
		if m.Name == "" && len(m.IDs()) > 0 {
			ids = append(ids, m.IDs()[0])
		}
	}
	return ids
}

// mustAsk reports whether out mentions an id whose name is unknown and that Feishu was not asked for lately.
func (g *Gateway) mustAsk(out *Sent) bool {
	return !peerchat.IsID(out.ChatID) && g.opts.API.Ready() && slices.ContainsFunc(g.unnamed(out), func(id string) bool {
		asked, _ := g.recent.asked.Get(nameless{out.ChatID, id})
		return time.Since(asked) > askNamesAgain
	})
}

// askNames runs f, which asks Feishu for names of a chat, on another goroutine.
func (g *Gateway) askNames(kind string, chat relay.ChatID, f func(context.Context)) <-chan singleflight.Result {
	return g.ask(kind, string(chat), func(ctx context.Context) {
		g.count(countedNamesAsked)
		f(ctx)
	}, func() { g.drafts.retry(chat) })
}

// nameAll asks Feishu for the names that out lacks. d waits for them.
func (g *Gateway) nameAll(d *draft, out *Sent) {
	g.drafts.mu.Lock()
	d.retryAt = time.Now().Add(askWait + time.Second)
	g.drafts.mu.Unlock()
	chat, ids := out.ChatID, g.unnamed(out)
	g.askNames("names", chat, func(ctx context.Context) {
		defer func() {
			for _, id := range ids {
				g.recent.asked.Add(nameless{chat, id}, time.Now())
			}
		}()
		g.learnNames(ctx, chat, ids)
	})
}

// learnNames asks for a chat's bots, then for its people by each kind of id that
// is still without a name.
func (g *Gateway) learnNames(ctx context.Context, chat relay.ChatID, ids []string) {
	if _, err := g.botsOf(ctx, chat); err != nil {
		g.log.Warn("the names of a chat's bots are not known: mentions by id match no bot", "chat", chat, "err", err)
	}
	for idType, prefix := range map[string]string{"open_id": "ou_", "union_id": "on_", "user_id": ""} {
		wanted := func(id string) bool {
			who, _ := g.opts.Book.Name(id)
			return who.Name == "" && strings.HasPrefix(id, prefix) &&
				(prefix != "" ||
					!strings.HasPrefix(id, "ou_") && !strings.HasPrefix(id, "on_") && !strings.HasPrefix(id, "cli_"))
		}
		if !slices.ContainsFunc(ids, wanted) {
			continue
		}
		if _, err := g.peopleOf(ctx, chat, idType); err != nil {
			g.log.Debug("the names of a chat's people are not known", "chat", chat, "err", err)
		}
	}
}

// botsOf asks for a chat's bots, and learns them.
func (g *Gateway) botsOf(ctx context.Context, chat relay.ChatID) ([]feishu.Bot, error) {
	bots, err := g.opts.API.ChatBots(ctx, chat)
	if err == nil {
		g.opts.Book.LearnChatBots(bots)
	}
	return bots, err
}

// peopleOf asks for a chat's people by one kind of id, and learns their names.
func (g *Gateway) peopleOf(ctx context.Context, chat relay.ChatID, idType string) (map[string]string, error) {
	names, err := g.opts.API.ChatMembers(ctx, chat, idType)
	for id, name := range names {
		g.opts.Book.LearnName(id, feishu.Who{Name: name})
	}
	return names, err
}
