package gateway

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/singleflight"

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

// askNames has f ask Feishu, in the background, for names of a chat.
func (g *Gateway) askNames(kind string, chat relay.ChatID, f func(context.Context)) <-chan singleflight.Result {
	return g.ask(kind, string(chat), func(ctx context.Context) {
		g.count(countedNamesAsked)
		f(ctx)
	}, func() { g.drafts.retry(chat, false) })
}

// nameAll asks who the chat of out has under the ids that nobody can name, and returns how long d waits for that at
// most.
func (g *Gateway) nameAll(d *draft, out *Sent) time.Duration {
	const wait = askWait + time.Second
	g.drafts.mu.Lock()
	d.retryAt = time.Now().Add(wait)
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
	return wait
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
	for _, b := range bots {
		g.opts.Book.LearnBot(b)
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
