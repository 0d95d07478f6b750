package gateway

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/content"
	"feishu-relay/feishu/peerchat"
	"feishu-relay/mention"
	"feishu-relay/relay"
)

const (
	rosterWait  = time.Second      // for names that Feishu was not asked for before; then the send passes unchanged
	rosterFresh = 10 * time.Minute // then Feishu is asked again, if the names are used
)

// roster returns who can be mentioned in a chat by their names, as far as Feishu has returned it in time.
func (g *Gateway) roster(chat relay.ChatID) *mention.Directory {
	ctx, cancel := context.WithTimeout(g.ctx, rosterWait)
	defer cancel()
	ask := func(ctx context.Context) (*mention.Directory, error) {
		people, err := g.opts.API.ChatMembers(ctx, chat, "open_id")
		if err != nil {
			g.log.Warn("the members of a chat are not known: plain names stay plain", "chat", chat, "err", err)
		}
		bots, botsErr := g.opts.API.ChatBots(ctx, chat)
		if botsErr != nil {
			g.log.Debug("the bots of a chat are not known; those met before are used", "chat", chat, "err", botsErr)
			bots = g.opts.Book.Bots()
		}
		return g.mentionable(people, bots), err
	}
	question := fmt.Sprintf("roster %d %s", g.opts.Book.Version(), chat) // asked at once about a bot with another name
	names, err := feishu.Known(ctx, g.opts.Book, question, rosterFresh, ask)
	if err != nil {
		g.log.Debug("not all names of a chat are known", "chat", chat, "err", err)
	}
	return cmp.Or(names, mention.NewDirectory(nil))
}

// mentionable are people, by their open_ids, and bots.
func (g *Gateway) mentionable(people map[string]string, bots []feishu.Bot) *mention.Directory {
	var all []mention.Agent
	for id, name := range people {
		g.opts.Book.LearnName(id, feishu.Who{Name: name})
		if strings.HasPrefix(id, "ou_") && relay.CheckID(id) == nil {
			all = append(all, mention.Agent{ID: id, Names: []string{name}})
		}
	}
	for _, b := range bots {
		g.opts.Book.LearnBot(b)
		if known, ok := g.opts.Book.Bot(b.OpenID); ok && strings.HasPrefix(string(b.OpenID), "ou_") {
			all = append(all, mention.Agent{ID: string(b.OpenID), Names: []string{b.Name, string(known.Agent)}})
		}
	}
	return mention.NewDirectory(all)
}

// withMentions returns the body of a send with real mentions in the place of plain names; nil
// where it stays as it is.
func (g *Gateway) withMentions(t *call) (changed []byte) {
	defer g.caught("mentions") // which leaves nil
	chat := g.recent.chatOf(t.message)
	var all map[string]json.RawMessage
	var req sendRequest
	if !g.opts.RewriteMentions || !t.sends || json.Unmarshal(t.request, &all) != nil {
		return nil
	}
	if req = t.sendRequest(); t.message == "" && t.http.URL.Query().Get("receive_id_type") == "chat_id" {
		chat = relay.ChatID(req.ReceiveID)
	}
	if chat == "" || g.opts.Book.Chat(chat).Kind != feishu.ChatGroup {
		return nil
	}
	names := sync.OnceValue(func() *mention.Directory { return g.roster(chat) })
	content, ok := content.Rewrite(req.MsgType, req.Content, func(text string) (found []content.Named) {
		if !strings.ContainsAny(text, "@＠") {
			return nil
		}
		for _, h := range names().Plain(text) {
			who, _ := g.opts.Book.Name(h.Agent)
			found = append(found, content.Named{From: h.From, To: h.To, OpenID: relay.OpenID(h.Agent), Name: who.Name})
		}
		return found
	})
	if !ok {
		return nil
	}
	all["content"], _ = relay.Marshal(content) // these never fail for texts and JSON
	changed, _ = relay.Marshal(all)
	return changed
}

// askNamesAgain is how long a chat is not asked again for its bots and members.
const askNamesAgain = time.Minute

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

// nameless returns the ids that out mentions and whose names Feishu can be asked for.
func (g *Gateway) nameless(out *Sent) []string {
	var ids []string
	for _, m := range g.named(out.Mentions) {
		if m.Name == "" && len(m.IDs()) > 0 && !peerchat.IsID(out.ChatID) && g.opts.API.Ready() {
			ids = append(ids, m.IDs()[0])
		}
	}
	return ids
}

// askNames asks Feishu for the names of those that a message mentions, by each kind of id that is without one.
func (g *Gateway) askNames(ctx context.Context, out *Sent) {
	if len(g.nameless(out)) == 0 {
		return
	}
	err := g.opts.Book.AskBots(ctx, out.ChatID, askNamesAgain)
	// An app is none of the people. Which were asked for once are not asked for again.
	kinds := map[string]string{"ou_": "open_id", "on_": "union_id", "": "user_id"}
	for _, id := range g.nameless(out) {
		if kind, ok := kinds[id[:strings.Index(id, "_")+1]]; ok {
			err = cmp.Or(err, g.opts.Book.AskPeople(ctx, out.ChatID, kind, askNamesAgain))
		}
	}
	if err != nil {
		g.log.Warn("the names of a chat are not known: mentions by id match no bot", "chat", out.ChatID, "err", err)
	}
}
