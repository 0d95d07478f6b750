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

	// answer is what the bot says to words of somebody who mentions it, or "".
	answer func(fromBot bool, sender, words string) string
	// heard is told of each message, as a person would read it, and then of the
	// message that the bot sent, or "", and of what went wrong.
	heard func(id, text string) (done func(sent string, err error))

	answering sync.WaitGroup
}

// newSDKBot points both halves of the SDK at baseURL. That is all that is to be
// done for a bot to have a sidecar.
func newSDKBot(appID, secret, baseURL string) *sdkBot {
	b := &sdkBot{client: lark.NewClient(appID, secret, lark.WithOpenBaseUrl(baseURL), lark.WithLogger(quiet{}))}
	handler := dispatcher.NewEventDispatcher("", "").OnP2MessageReceiveV1(b.receive)
	handler.InitConfig(larkevent.WithLogger(quiet{}))
	b.events = larkws.NewClient(appID, secret, larkws.WithDomain(baseURL), larkws.WithEventHandler(handler), larkws.WithLogger(quiet{}))
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
	shown, words, mentioned := content.Text, content.Text, false
	for _, at := range m.Mentions {
		name := "@" + str(at.Name)
		shown = strings.ReplaceAll(shown, str(at.Key), name)
		if str(at.Id.OpenId) == b.openID {
			mentioned, name = true, ""
		}
		words = strings.ReplaceAll(words, str(at.Key), name)
	}
	done := b.heard(str(m.MessageId), shown)
	b.answering.Go(func() {
		if !mentioned {
			done("", nil)
			return
		}
		done(b.reply(ctx, m, from, strings.TrimSpace(words)))
	})
	return nil
}

// reply answers m: in short with a text, at length with a card that it streams.
func (b *sdkBot) reply(ctx context.Context, m *larkim.EventMessage, from *larkim.EventSender, words string) (sent string, err error) {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	names, err := b.bots(ctx, str(m.ChatId))
	if err != nil {
		return "", err
	}
	fromBot, sender := str(from.SenderType) != "user", userName
	if fromBot {
		sender = names[str(from.SenderId.OpenId)]
	}
	answer := b.answer(fromBot, sender, words)
	switch {
	case answer == "":
		return "", nil
	case len([]rune(answer)) > shortAnswer:
		return b.stream(ctx, str(m.MessageId), answer, names)
	}
	text, err := json.Marshal(map[string]string{"text": mentioning(answer, names, `<at user_id="%s"></at>`)})
	if err != nil {
		return "", err
	}
	return b.send(ctx, str(m.MessageId), "text", string(text))
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
