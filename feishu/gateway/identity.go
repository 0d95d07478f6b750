package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"feishu-relay/feishu"
)

// maxTokens is how many tokens are remembered. The oldest is forgotten, and learned again from the next send with it.
const maxTokens = 256

// learn makes app the one that is served, unless one is known, and reports whether it is the one.
func (g *Gateway) learn(app string) (ours bool) {
	book := g.opts.Book
	if app != "" && book.Self().AppID == "" {
		book.LearnSelf(feishu.Self{AppID: app})
		g.log.Info("this gateway serves the app", "app", app)
	}
	if ours = book.IsApp(app); ours || app == "" {
		g.knowSelf()
		return ours
	}
	g.count("foreign_app")
	g.others.Do(func() {
		g.log.Warn("calls of another app pass unread, and nothing of that bot is relayed: a gateway serves one app; "+
			"if that is the bot, set FEISHU_APP_ID to it", "serves", book.Self().AppID, "other", app)
	})
	return false
}

// proved records that token is app's, as an answer of Feishu shows, and reports whether app is the one that is served.
func (g *Gateway) proved(token, app string) (ours bool) {
	ours = g.learn(app)
	if token == "" {
		return ours
	}
	g.tokens.Add(token, app)
	if ours && strings.HasPrefix(token, "t-") {
		g.opts.API.SawToken(token)
	}
	return ours
}

// watches reports whether calls with a token are read: not if it is known to be another app's or a user's.
func (g *Gateway) watches(token string) bool {
	if strings.HasPrefix(token, "u-") {
		g.count("foreign_user")
		return false
	}
	app, known := g.tokens.Get(token)
	return !known || g.opts.Book.IsApp(app)
}

// knows reports whether token is known to be this app's.
func (g *Gateway) knows(token string) bool {
	app, known := g.tokens.Get(token)
	return known && g.opts.Book.IsApp(app)
}

// ours reports whether the answer to a send shows this app as its sender, and records the app of the token.
func (g *Gateway) ours(t *call, s feishu.Sender) bool {
	if s.AppID == "" {
		return g.knows(t.token)
	}
	return g.proved(t.token, s.AppID)
}

// tokenAnswer reads a token call: which app it is, and its token (docs/feishu.md 6.1).
func (g *Gateway) tokenAnswer(t *call) {
	var req struct {
		AppID feishu.Once `json:"app_id"`
	}
	issued, err := feishu.ParseTokens(t.answer)
	if err != nil || issued.Tenant == "" && issued.App == "" || json.Unmarshal(t.request, &req) != nil ||
		req.AppID.Times != 1 || req.AppID.Text == "" {
		return
	}
	g.proved(issued.Tenant, req.AppID.Text)
	g.proved(issued.App, req.AppID.Text)
}

// selfAnswer reads who the bot is: after it was removed and added again, somebody else (docs/feishu.md 4.2).
func (g *Gateway) selfAnswer(t *call) {
	if self, err := feishu.ParseBotInfo(t.answer); err == nil && self.OpenID != "" && g.knows(t.token) {
		g.opts.Book.LearnSelf(self)
	}
}

// proven reports whether token is this app's. An unknown one, as after a restart, is checked at Feishu: the answer has
// the open_id of the token's bot, which no other app's bot has (docs/feishu.md 4.1). An error means that Feishu did not
// answer.
func (g *Gateway) proven(ctx context.Context, token string) (ours bool, err error) {
	self := g.opts.Book.Self()
	switch {
	case g.knows(token):
		return true, nil
	case !strings.HasPrefix(token, "t-") || self.OpenID == "":
		return false, nil
	}
	api := feishu.NewAPI(g.opts.Upstream.String(), "", "", feishu.WithHTTPClient(g.client))
	api.SawToken(token)
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	bot, err := api.BotInfo(ctx)
	if err != nil || bot.OpenID != self.OpenID {
		if errors.Is(err, feishu.ErrNoToken) { // Feishu did not accept the token
			err = nil
		}
		return false, err
	}
	g.proved(token, self.AppID)
	return true, nil
}

// askWait is how long a call of the gateway itself to Feishu may take, and how often it is made again.
const askWait = 10 * time.Second

// knowSelf asks Feishu on another goroutine who the bot is, if that is unknown.
func (g *Gateway) knowSelf() {
	if g.opts.Book.Self().OpenID == "" {
		go func() { _ = g.opts.Book.AskSelf(g.ctx, askWait) }() // asked again by the next send
	}
}
