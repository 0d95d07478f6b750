package gateway

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/peerchat"
	"feishu-relay/relay"
)

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

// asWritten makes m what the bot wrote, where that mentions an id which the sidecar
// made up for a bot: Feishu does not know it, and its answer leaves it out.
func (g *Gateway) asWritten(m *feishu.Message, t *tapped) {
	if !bytes.Contains(t.request, []byte("ou_")) && !bytes.Contains(t.request, []byte(`\u00`)) {
		return // it names no open_id, nor an escaped one
	}
	content := t.sendRequest().Content
	for _, one := range feishu.Mentioned(m.Type, content) {
		if slices.ContainsFunc(m.Mentions, func(o feishu.Mention) bool { return o.Same(&one) }) {
			continue
		}
		if who, _ := g.opts.Book.Name(string(one.OpenID)); who.Agent != "" {
			m.Content, m.Mentions = content, append(m.Mentions, one)
		}
	}
}

// unnamed returns the ids of those that out mentions and nobody can name.
func (g *Gateway) unnamed(out *Sent) []string {
	var ids []string
	for _, m := range g.named(out.Mentions) {
		if m.Name == "" && len(m.IDs()) > 0 {
			ids = append(ids, m.IDs()[0])
		}
	}
	return ids
}

// mustAsk reports whether out mentions somebody without a name for whom its chat was
// not asked lately.
func (g *Gateway) mustAsk(out *Sent) bool {
	return !peerchat.IsID(out.ChatID) && g.opts.API.Ready() && slices.ContainsFunc(g.unnamed(out), func(id string) bool {
		asked, _ := g.recent.asked.Get(nameless{out.ChatID, id})
		return time.Since(asked) > askNamesAgain
	})
}

// askNames asks Feishu, in the background, who the chat of out has under the ids that
// nobody can name, and returns how long d waits for that at most. One question
// about a chat's names is under way at a time.
func (g *Gateway) askNames(d *draft, out *Sent) time.Duration {
	const wait = askWait + time.Second
	g.drafts.mu.Lock()
	d.retryAt = time.Now().Add(wait)
	g.drafts.mu.Unlock()
	key := "names of " + out.ChatID
	if _, busy := g.asking.LoadOrStore(key, true); busy {
		return wait
	}
	chat, ids := out.ChatID, g.unnamed(out)
	ask := func() {
		defer g.caught("names")
		defer func() {
			for _, id := range ids {
				g.recent.asked.Add(nameless{chat, id}, time.Now())
			}
			g.asking.Delete(key)
			g.drafts.each(func(d *draft) bool { return d.Message.ChatID == chat }, func(d *draft) { d.retryAt = time.Time{} })
		}()
		ctx, cancel := context.WithTimeout(g.ctx, askWait)
		defer cancel()
		g.count(countedNamesAsked)
		g.learnNames(ctx, chat, ids)
	}
	if !g.background(ask) {
		g.asking.Delete(key)
	}
	return wait
}

// learnNames asks for a chat's bots, then for its people by each kind of id that
// is still without a name.
func (g *Gateway) learnNames(ctx context.Context, chat relay.ChatID, ids []string) {
	bots, err := g.opts.API.ChatBots(ctx, chat)
	if err != nil {
		g.log.Warn("the names of a chat's bots are not known: mentions by id reach nobody", "chat", chat, "err", err)
	}
	for _, b := range bots {
		g.opts.Book.LearnBot(b)
	}
	for idType, prefix := range map[string]string{"open_id": "ou_", "union_id": "on_", "user_id": ""} {
		wanted := func(id string) bool {
			who, _ := g.opts.Book.Name(id)
			return who.Name == "" && strings.HasPrefix(id, prefix) &&
				(prefix != "" || !strings.HasPrefix(id, "ou_") && !strings.HasPrefix(id, "on_") && !strings.HasPrefix(id, "cli_"))
		}
		if !slices.ContainsFunc(ids, wanted) {
			continue
		}
		names, err := g.opts.API.ChatMembers(ctx, chat, idType)
		if err != nil {
			g.log.Debug("the names of a chat's people are not known", "chat", chat, "err", err)
		}
		for id, name := range names {
			g.opts.Book.LearnName(id, feishu.Who{Name: name})
		}
	}
}
