package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	larkcardkit "github.com/larksuite/oapi-sdk-go/v3/service/cardkit/v1"
)

// How a card is streamed.
const (
	thinking    = "Thinking…"
	answerPart  = "answer" // the element that grows
	cardPieces  = 3
	betweenThem = 60 * time.Millisecond // a model takes its time
)

// stream answers a message with a card that grows, as frameworks do with what a
// model writes: first a placeholder, then more and more of the text.
func (b *sdkBot) stream(ctx context.Context, to, answer string, names map[string]string) (sent string, err error) {
	kit := b.client.Cardkit.V1
	card, err := json.Marshal(map[string]any{"schema": "2.0", "config": map[string]any{"streaming_mode": true},
		"body": map[string]any{"elements": []any{map[string]string{"tag": "markdown", "element_id": answerPart, "content": thinking}}}})
	if err != nil {
		return "", err
	}
	made, err := kit.Card.Create(ctx, larkcardkit.NewCreateCardReqBuilder().Body(
		larkcardkit.NewCreateCardReqBodyBuilder().Type("card_json").Data(string(card)).Build()).Build())
	if err = orCode(err, made); err != nil {
		return "", fmt.Errorf("make a card: %w", err)
	}
	id := str(made.Data.CardId)
	if sent, err = b.send(ctx, to, "interactive", `{"type":"card","data":{"card_id":"`+id+`"}}`); err != nil {
		return "", err
	}
	runes := []rune(answer)
	for i := 1; i <= cardPieces; i++ {
		select {
		case <-time.After(betweenThem):
		case <-ctx.Done():
			return sent, ctx.Err()
		}
		soFar := mentioning(string(runes[:len(runes)*i/cardPieces]), names, "<at id=%s></at>")
		wrote, err := kit.CardElement.Content(ctx, larkcardkit.NewContentCardElementReqBuilder().CardId(id).ElementId(answerPart).Body(
			larkcardkit.NewContentCardElementReqBodyBuilder().Content(soFar).Sequence(i).Build()).Build())
		if err = orCode(err, wrote); err != nil {
			return sent, fmt.Errorf("write into a card: %w", err)
		}
	}
	ended, err := kit.Card.Settings(ctx, larkcardkit.NewSettingsCardReqBuilder().CardId(id).Body(
		larkcardkit.NewSettingsCardReqBodyBuilder().Settings(`{"config":{"streaming_mode":false}}`).Sequence(cardPieces+1).Build()).Build())
	if err = orCode(err, ended); err != nil {
		return sent, fmt.Errorf("end a card: %w", err)
	}
	return sent, nil
}
