package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"

	lark "github.com/larksuite/oapi-sdk-go/v3"
	larkcore "github.com/larksuite/oapi-sdk-go/v3/core"
	larkevent "github.com/larksuite/oapi-sdk-go/v3/event"
	"github.com/larksuite/oapi-sdk-go/v3/event/dispatcher"
	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"
)

// sdkBot is a bot as anybody writes one on Feishu's official SDK: it has an app,
// a base URL and something to say. There is nothing of a relay in it.
type sdkBot struct {
	client *lark.Client
	events *larkws.Client
	openID string // its own, as Feishu says

	// answer is what the bot says to somebody who mentions it, or speaks to it
	// alone, or "".
	answer func(context.Context, incoming) (string, error)
	// heard is told of each message, and then of the message that the bot sent,
	// or "", and of what went wrong.
	heard func(incoming) (done func(sent string, err error))

	answering sync.WaitGroup
}

// incoming is a message that the SDK gave a bot.
type incoming struct {
	id, chat string
	private  bool // in a chat of the bot and a person
	fromBot  bool
	sender   string // name of who said it, when it is answered
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
func (b *sdkBot) introduce(ctx context.Context) error {
	var info struct {
		Bot struct {
			OpenID string `json:"open_id"`
		}
	}
	if err := b.get(ctx, "/open-apis/bot/v3/info", &info); err != nil {
		return err
	}
	b.openID = info.Bot.OpenID
	return nil
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
	in := incoming{id: str(m.MessageId), chat: str(m.ChatId), private: str(m.ChatType) == "p2p",
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
		if !addressed {
			done("", nil)
			return
		}
		done(b.reply(ctx, in, str(from.SenderId.OpenId)))
	})
	return nil
}

// reply answers in, which the bearer of an open_id said: in short with a text, at
// length with a card that it streams.
func (b *sdkBot) reply(ctx context.Context, in incoming, from string) (sent string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	names := map[string]string{}
	if !in.private {
		if names, err = b.bots(ctx, in.chat); err != nil {
			return "", err
		}
	}
	in.sender = userName
	if in.fromBot {
		in.sender = names[from]
	}
	answer, err := b.answer(ctx, in)
	switch {
	case answer == "" || err != nil:
		return "", err
	case len([]rune(answer)) > shortAnswer:
		return b.stream(ctx, in.id, answer, names)
	}
	text, err := json.Marshal(map[string]string{"text": mentioning(answer, names, `<at user_id="%s"></at>`)})
	if err != nil {
		return "", err
	}
	return b.send(ctx, in.id, "text", string(text))
}

// shortAnswer is the most runes of an answer that is no card.
const shortAnswer = 30

// bots are the names of the bots of a chat, by the open_id that each has for
// this one.
func (b *sdkBot) bots(ctx context.Context, chat string) (map[string]string, error) {
	var list struct {
		Data struct {
			Items []struct {
				ID   string `json:"bot_id"`
				Name string `json:"bot_name"`
			}
		}
	}
	if err := b.get(ctx, "/open-apis/im/v1/chats/"+chat+"/members/bots", &list); err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, bot := range list.Data.Items {
		names[bot.ID] = bot.Name
	}
	return names, nil
}

// mentioning makes of "@Name" a tag, in which %s is the open_id.
func mentioning(text string, names map[string]string, tag string) string {
	for id, name := range names {
		text = strings.ReplaceAll(text, "@"+name, fmt.Sprintf(tag, id))
	}
	return text
}

func (b *sdkBot) send(ctx context.Context, to, kind, content string) (id string, err error) {
	resp, err := b.client.Im.Message.Reply(ctx, larkim.NewReplyMessageReqBuilder().MessageId(to).
		Body(larkim.NewReplyMessageReqBodyBuilder().MsgType(kind).Content(content).Build()).Build())
	if err = orCode(err, resp); err != nil {
		return "", fmt.Errorf("reply: %w", err)
	}
	return str(resp.Data.MessageId), nil
}

func (b *sdkBot) get(ctx context.Context, path string, out any) error {
	resp, err := b.client.Get(ctx, path, nil, larkcore.AccessTokenTypeTenant)
	if err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	var code larkcore.CodeError
	if err := errors.Join(json.Unmarshal(resp.RawBody, &code), json.Unmarshal(resp.RawBody, out)); err != nil {
		return fmt.Errorf("GET %s: answered %d: %w", path, resp.StatusCode, err)
	}
	if code.Code != 0 {
		return fmt.Errorf("GET %s: %w", path, code)
	}
	return nil
}

// orCode is err, or what an answer says that is no success.
func orCode(err error, resp interface {
	Success() bool
	ErrorResp() string
}) error {
	if err == nil && !resp.Success() {
		return errors.New(resp.ErrorResp())
	}
	return err
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
