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
	"github.com/larksuite/oapi-sdk-go/v3/event/dispatcher"
	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"
	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"

	"feishu-relay/internal/wait"
)

// sdkBot is a bot as anybody writes one on Feishu's official SDK: it has an app,
// a base URL and something to say. There is nothing of a relay in it.
type sdkBot struct {
	client  *lark.Client
	events  *larkws.Client
	openID  string                           // its own
	names   map[string]string                // of all bots, by the open_id that each has for this one
	heard   func(context.Context, *incoming) // takes each message on a goroutine of its own
	hearing sync.WaitGroup
}

// incoming is a message that a bot was given.
type incoming struct {
	id, chat  string
	private   bool // in a chat of the bot and a person
	addressed bool // the bot is mentioned, or spoken to alone
	fromBot   bool
	from      string // open_id of the sender
	sender    string // name of the bot that said it; "" for a person
	text      string // as a person would read it
}

// silent is above the levels of the SDK's log, which goes to standard output.
const silent = larkcore.LogLevelError + 1

// newSDKBot points both halves of the SDK at baseURL. That is all that is to be
// done for a bot to have a sidecar.
func newSDKBot(appID, secret, baseURL string) *sdkBot {
	b := &sdkBot{client: lark.NewClient(appID, secret, lark.WithOpenBaseUrl(baseURL), lark.WithLogLevel(silent))}
	handler := dispatcher.NewEventDispatcher("", "").OnP2MessageReceiveV1(b.receive)
	b.events = larkws.NewClient(appID, secret, larkws.WithDomain(baseURL), larkws.WithEventHandler(handler),
		larkws.WithLogLevel(silent))
	return b
}

// run holds the long connection until ctx is done, and waits for what the bot is at.
func (b *sdkBot) run(ctx context.Context) error {
	err := b.events.Start(ctx)
	b.hearing.Wait()
	return err
}

// receive takes a message and thinks about it elsewhere: Feishu waits for the
// acknowledgement.
func (b *sdkBot) receive(ctx context.Context, e *larkim.P2MessageReceiveV1) error {
	m, from, str := e.Event.Message, e.Event.Sender, larkcore.StringValue
	var content struct{ Text string }
	if err := json.Unmarshal([]byte(str(m.Content)), &content); err != nil {
		return fmt.Errorf("content of a message: %w", err)
	}
	private := str(m.ChatType) == "p2p"
	in := &incoming{id: str(m.MessageId), chat: str(m.ChatId), private: private, addressed: private,
		fromBot: str(from.SenderType) != "user", from: str(from.SenderId.OpenId), text: content.Text}
	in.sender = b.names[in.from]
	for _, at := range m.Mentions {
		in.text = strings.ReplaceAll(in.text, str(at.Key), "@"+str(at.Name))
		in.addressed = in.addressed || str(at.Id.OpenId) == b.openID
	}
	b.hearing.Go(func() { b.heard(ctx, in) })
	return nil
}

// say answers a message with a text.
func (b *sdkBot) say(ctx context.Context, to, text string) (sent string) {
	return b.send(ctx, to, "text", object{"text": mentioning(text, b.names, `<at user_id="%s"></at>`)})
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
// model writes: first that it is thinking, then more and more of the text.
func (b *sdkBot) stream(ctx context.Context, to, answer, thinking string) (sent string) {
	made := b.ask(ctx, http.MethodPost, "cardkit/v1/cards", object{"type": "card_json", "data": asJSON(object{
		"schema": "2.0", "config": object{"streaming_mode": true},
		"body": object{"elements": []object{{"tag": "markdown", "element_id": answerPart, "content": thinking}}}})})
	card := "cardkit/v1/cards/" + made.Data.CardID
	sent = b.send(ctx, to, "interactive", object{"type": "card", "data": object{"card_id": made.Data.CardID}})
	runes := []rune(answer)
	for i := 1; i <= cardPieces; i++ {
		must(wait.Sleep(ctx, betweenThem))
		soFar := mentioning(string(runes[:len(runes)*i/cardPieces]), b.names, "<at id=%s></at>")
		b.ask(ctx, http.MethodPut, card+"/elements/"+answerPart+"/content", object{"content": soFar, "sequence": i})
	}
	b.ask(ctx, http.MethodPatch, card+"/settings",
		object{"settings": asJSON(object{"config": object{"streaming_mode": false}}), "sequence": cardPieces + 1})
	return sent
}

func (b *sdkBot) send(ctx context.Context, to, kind string, content object) (id string) {
	return b.ask(ctx, http.MethodPost, "im/v1/messages/"+to+"/reply",
		object{"msg_type": kind, "content": asJSON(content)}).Data.MessageID
}

type object map[string]any

func asJSON(v any) string {
	data, err := json.Marshal(v)
	must(err)
	return string(data)
}

// result is what the bot reads in Feishu's answers.
type result struct {
	larkcore.CodeError
	Data struct {
		MessageID string `json:"message_id"`
		CardID    string `json:"card_id"`
	}
}

// ask calls Feishu's API.
func (b *sdkBot) ask(ctx context.Context, method, path string, body any) (answered result) {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	resp, err := b.client.Do(ctx, &larkcore.ApiReq{HttpMethod: method, ApiPath: "/open-apis/" + path, Body: body,
		SupportedAccessTokenTypes: []larkcore.AccessTokenType{larkcore.AccessTokenTypeTenant}})
	must(wrap(err, "%s %s", method, path))
	err = json.Unmarshal(resp.RawBody, &answered)
	if err == nil && answered.Code != 0 {
		err = answered.CodeError
	}
	must(wrap(err, "%s %s: answered %d", method, path, resp.StatusCode))
	return answered
}
