package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	lark "github.com/larksuite/oapi-sdk-go/v3"
	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"
	larkevent "github.com/larksuite/oapi-sdk-go/v3/event"
	"github.com/larksuite/oapi-sdk-go/v3/event/dispatcher"
	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/internal/wait"
)

// sdkBot is a bot as anybody writes one on Feishu's official SDK: it has an app,
// a base URL and something to say. There is nothing of a relay in it.
type sdkBot struct {
	client *lark.Client
	events *larkws.Client
	openID string // its own, as Feishu says

	// answer is what the bot says to somebody who mentions it, or speaks to it
	// alone, or "".
	answer func(context.Context, incoming) string
	// heard is told of each message, and then of the message that the bot sent,
	// or "", and of what went wrong.
	heard func(incoming) (done func(sent string, err error))

	thinking  string // what a card says before there is an answer
	answering sync.WaitGroup
}

// incoming is a message that the SDK gave a bot.
type incoming struct {
	bot      *sdkBot // that got it
	id, chat string
	private  bool // in a chat of the bot and a person
	fromBot  bool
	sender   string // name of the bot that said it, when it is answered; "" for a person
	text     string // as a person would read it
	words    string // without the mention of the bot itself
}

// newSDKBot points both halves of the SDK at baseURL. That is all that is to be
// done for a bot to have a sidecar.
func newSDKBot(appID, secret, baseURL string) *sdkBot {
	b := &sdkBot{client: lark.NewClient(appID, secret, lark.WithOpenBaseUrl(baseURL), lark.WithLogger(quiet{}))}
	handler := dispatcher.NewEventDispatcher("", "").OnP2MessageReceiveV1(b.receive)
	handler.InitConfig(larkevent.WithLogger(quiet{}))
	b.events = larkws.NewClient(appID, secret, larkws.WithDomain(baseURL), larkws.WithEventHandler(handler),
		larkws.WithLogger(quiet{}))
	return b
}

// introduce learns who the bot is.
func (b *sdkBot) introduce(ctx context.Context) {
	var info struct {
		Bot struct {
			OpenID string `json:"open_id"`
		}
	}
	b.call(ctx, http.MethodGet, "bot/v3/info", nil, &info)
	b.openID = info.Bot.OpenID
}

// run holds the long connection until ctx is done, and lets the answers end.
func (b *sdkBot) run(ctx context.Context) error {
	err := b.events.Start(ctx)
	b.answering.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// receive takes a message and thinks about it elsewhere: Feishu waits for the
// acknowledgement.
func (b *sdkBot) receive(ctx context.Context, e *larkim.P2MessageReceiveV1) error {
	m, from := e.Event.Message, e.Event.Sender
	var content struct{ Text string }
	if err := json.Unmarshal([]byte(str(m.Content)), &content); err != nil {
		return fmt.Errorf("content of a message: %w", err)
	}
	in := incoming{bot: b, id: str(m.MessageId), chat: str(m.ChatId), private: str(m.ChatType) == "p2p",
		fromBot: str(from.SenderType) != "user", text: content.Text, words: content.Text}
	addressed := in.private
	for _, at := range m.Mentions {
		name := "@" + str(at.Name)
		in.text = strings.ReplaceAll(in.text, str(at.Key), name)
		if str(at.Id.OpenId) == b.openID {
			addressed, name = true, ""
		}
		in.words = strings.ReplaceAll(in.words, str(at.Key), name)
	}
	in.words = strings.TrimSpace(in.words)
	done := b.heard(in)
	b.answering.Go(func() {
		sent := ""
		err := try(func() {
			if addressed {
				sent = b.reply(ctx, in, str(from.SenderId.OpenId))
			}
		})
		done(sent, err)
	})
	return nil
}

// reply answers in, which the bearer of an open_id said: with a text, or, in several
// lines, with a card that it streams.
func (b *sdkBot) reply(ctx context.Context, in incoming, from string) (sent string) {
	names := map[string]string{}
	if !in.private {
		names = b.bots(ctx, in.chat)
	}
	if in.fromBot {
		in.sender = names[from]
	}
	answer := b.answer(ctx, in)
	switch {
	case answer == "":
		return ""
	case strings.Contains(answer, "\n"):
		return b.stream(ctx, in.id, answer, names)
	}
	return b.send(ctx, in.id, "text", map[string]string{"text": mentioning(answer, names, `<at user_id="%s"></at>`)})
}

// bots are the names of the bots of a chat, by the open_id that each has for
// this one.
func (b *sdkBot) bots(ctx context.Context, chat string) map[string]string {
	var list struct {
		Data struct {
			Items []struct {
				ID   string `json:"bot_id"`
				Name string `json:"bot_name"`
			}
		}
	}
	b.call(ctx, http.MethodGet, "im/v1/chats/"+chat+"/members/bots", nil, &list)
	names := map[string]string{}
	for _, bot := range list.Data.Items {
		names[bot.ID] = bot.Name
	}
	return names
}

// mentioning makes of "@Name" a tag, in which %s is the open_id.
func mentioning(text string, names map[string]string, tag string) string {
	for id, name := range names {
		text = strings.ReplaceAll(text, "@"+name, fmt.Sprintf(tag, id))
	}
	return text
}

// How a card is streamed.
const (
	answerPart  = "answer" // the element that grows
	cardPieces  = 3
	betweenThem = 60 * time.Millisecond // a model takes its time
)

// stream answers a message with a card that grows, as frameworks do with what a
// model writes: first a placeholder, then more and more of the text.
func (b *sdkBot) stream(ctx context.Context, to, answer string, names map[string]string) (sent string) {
	var made struct {
		Data struct {
			ID string `json:"card_id"`
		}
	}
	b.call(ctx, http.MethodPost, "cardkit/v1/cards", object{"type": "card_json", "data": asJSON(object{
		"schema": "2.0", "config": object{"streaming_mode": true},
		"body": object{"elements": []object{{"tag": "markdown", "element_id": answerPart, "content": b.thinking}}}})}, &made)
	card := "cardkit/v1/cards/" + made.Data.ID
	sent = b.send(ctx, to, "interactive", object{"type": "card", "data": object{"card_id": made.Data.ID}})
	runes := []rune(answer)
	for i := 1; i <= cardPieces; i++ {
		must(wait.Sleep(ctx, betweenThem))
		soFar := mentioning(string(runes[:len(runes)*i/cardPieces]), names, "<at id=%s></at>")
		b.call(ctx, http.MethodPut, card+"/elements/"+answerPart+"/content", object{"content": soFar, "sequence": i}, nil)
	}
	b.call(ctx, http.MethodPatch, card+"/settings",
		object{"settings": asJSON(object{"config": object{"streaming_mode": false}}), "sequence": cardPieces + 1}, nil)
	return sent
}

// react puts an emoji below a message, as frameworks do when they begin to think about it.
func (b *sdkBot) react(ctx context.Context, to, emoji string) {
	b.call(ctx, http.MethodPost, "im/v1/messages/"+to+"/reactions",
		object{"reaction_type": object{"emoji_type": emoji}}, nil)
}

func (b *sdkBot) send(ctx context.Context, to, kind string, content any) (id string) {
	var sent struct {
		Data struct {
			ID string `json:"message_id"`
		}
	}
	b.call(ctx, http.MethodPost, "im/v1/messages/"+to+"/reply",
		object{"msg_type": kind, "content": asJSON(content)}, &sent)
	return sent.Data.ID
}

type object map[string]any

func asJSON(v any) string {
	data, err := json.Marshal(v)
	must(err)
	return string(data)
}

// call calls Feishu's API, and reads the answer into out, which may be nil.
func (b *sdkBot) call(ctx context.Context, method, path string, body, out any) {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	resp, err := b.client.Do(ctx, &larkcore.ApiReq{HttpMethod: method, ApiPath: "/open-apis/" + path, Body: body,
		SupportedAccessTokenTypes: []larkcore.AccessTokenType{larkcore.AccessTokenTypeTenant}})
	must(wrap(err, "%s %s", method, path))
	var code larkcore.CodeError
	err = json.Unmarshal(resp.RawBody, &code)
	if err == nil && code.Code != 0 {
		err = code
	}
	if err == nil && out != nil {
		err = json.Unmarshal(resp.RawBody, out)
	}
	must(wrap(err, "%s %s: answered %d", method, path, resp.StatusCode))
}

func str(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// quiet keeps the SDK's log, which goes to standard output, from the demo's.
type quiet struct{}

func (quiet) Debug(context.Context, ...any) {}
func (quiet) Info(context.Context, ...any)  {}
func (quiet) Warn(context.Context, ...any)  {}
func (quiet) Error(context.Context, ...any) {}
