// Package larktest is what the tests' bots say through Feishu's official SDK.
package larktest

import (
	"context"
	"encoding/json"
	"fmt"

	lark "github.com/larksuite/oapi-sdk-go/v3"
	larkcardkit "github.com/larksuite/oapi-sdk-go/v3/service/cardkit/v1"
	larkim "github.com/larksuite/oapi-sdk-go/v3/service/im/v1"
)

// Taken makes an error of what Feishu refuses.
func Taken[R interface{ Success() bool }](answer R, err error) (R, error) {
	if err == nil && !answer.Success() {
		err = fmt.Errorf("answered %+v", answer)
	}
	return answer, err
}

// Text is the content of a text.
func Text(text string) string {
	data, _ := json.Marshal(map[string]string{"text": text}) // of strings: cannot fail
	return string(data)
}

// Shown is the content of a message that shows a card of [Card].
func Shown(card string) string { return `{"type":"card","data":{"card_id":"` + card + `"}}` }

// Send sends a message to a chat. uuid lets Feishu know a repeat; "": none.
func Send(ctx context.Context, c *lark.Client, chat, msgType, content, uuid string) (id string, err error) {
	body := larkim.NewCreateMessageReqBodyBuilder().ReceiveId(chat).MsgType(msgType).Content(content)
	if uuid != "" {
		body.Uuid(uuid)
	}
	said, err := Taken(c.Im.Message.Create(ctx,
		larkim.NewCreateMessageReqBuilder().ReceiveIdType("chat_id").Body(body.Build()).Build()))
	if err != nil {
		return "", err
	}
	return *said.Data.MessageId, nil
}

// Reply replies to a message.
func Reply(ctx context.Context, c *lark.Client, to, msgType, content, uuid string) (id string, err error) {
	body := larkim.NewReplyMessageReqBodyBuilder().MsgType(msgType).Content(content)
	if uuid != "" {
		body.Uuid(uuid)
	}
	said, err := Taken(c.Im.Message.Reply(ctx,
		larkim.NewReplyMessageReqBuilder().MessageId(to).Body(body.Build()).Build()))
	if err != nil {
		return "", err
	}
	return *said.Data.MessageId, nil
}

// Card makes a card that is streamed.
func Card(ctx context.Context, c *lark.Client, text string) (id string, err error) {
	body := larkcardkit.NewCreateCardReqBodyBuilder().Type("card_json").Data(`{"schema":"2.0",` +
		`"config":{"streaming_mode":true},"body":{"elements":[{"tag":"markdown","content":"` + text +
		`","element_id":"content"}]}}`).Build()
	made, err := Taken(c.Cardkit.V1.Card.Create(ctx, larkcardkit.NewCreateCardReqBuilder().Body(body).Build()))
	if err != nil {
		return "", err
	}
	return *made.Data.CardId, nil
}

// Grow writes a new text into a card.
func Grow(ctx context.Context, c *lark.Client, card, text string, sequence int) error {
	body := larkcardkit.NewContentCardElementReqBodyBuilder().Content(text).Sequence(sequence).Build()
	_, err := Taken(c.Cardkit.V1.CardElement.Content(ctx,
		larkcardkit.NewContentCardElementReqBuilder().CardId(card).ElementId("content").Body(body).Build()))
	return err
}

// End ends the streaming of a card.
func End(ctx context.Context, c *lark.Client, card string, sequence int) error {
	body := larkcardkit.NewSettingsCardReqBodyBuilder().Settings(`{"config":{"streaming_mode":false}}`).
		Sequence(sequence).Build()
	_, err := Taken(c.Cardkit.V1.Card.Settings(ctx,
		larkcardkit.NewSettingsCardReqBuilder().CardId(card).Body(body).Build()))
	return err
}
