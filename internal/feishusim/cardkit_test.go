package feishusim

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	larkcardkit "github.com/larksuite/oapi-sdk-go/v3/service/cardkit/v1"
)

const streamingCard = `{"schema":"2.0","config":{"streaming_mode":true},"body":{"elements":[` +
	`{"tag":"markdown","content":"","element_id":"content"},{"tag":"markdown","content":"footer","element_id":"note"}]}}`

func TestAStreamedCard(t *testing.T) {
	r := newRoom(t, quick, App{Name: "BotA"}, App{Name: "BotB", Scopes: append(DefaultScopes(), ScopeGroupAll)})
	b := r.connect(r.apps[1])
	c := r.client(r.apps[0])
	made, err := c.Cardkit.V1.Card.Create(t.Context(), larkcardkit.NewCreateCardReqBuilder().
		Body(larkcardkit.NewCreateCardReqBodyBuilder().Type("card_json").Data(streamingCard).Build()).Build())
	if err != nil || !made.Success() {
		t.Fatalf("create: %v %v", err, made)
	}
	card := *made.Data.CardId
	content := `{"type":"card","data":{"card_id":"` + card + `"}}`
	id := r.mustSend(c, "interactive", content)
	if _, got := r.send(c, r.group.ID, "interactive", content); got != 230099 {
		t.Errorf("sent a second time: code %d", got)
	}
	e := r.next(b)
	if got := *e.Event.Message.Content; *e.Event.Message.MessageType != "interactive" || !strings.Contains(got, "user_dsl") || strings.Contains(got, "Hello") {
		t.Errorf("event: %s", got)
	}
	write := func(text string, sequence int) int {
		resp, err := c.Cardkit.V1.CardElement.Content(t.Context(), larkcardkit.NewContentCardElementReqBuilder().CardId(card).ElementId("content").
			Body(larkcardkit.NewContentCardElementReqBodyBuilder().Content(text).Sequence(sequence).Build()).Build())
		if err != nil {
			t.Fatal(err)
		}
		return resp.Code
	}
	for i, text := range []string{"Hel", "Hello", "Hello there"} {
		if got := write(text, i+1); got != 0 {
			t.Fatalf("write %d: %d", i, got)
		}
	}
	if m := r.message(id); m.Text != "Hello there\nfooter" || !m.Streaming || m.CardID != card {
		t.Errorf("while it streams: %+v", m)
	}
	if got := write("late", 3); got != 300317 {
		t.Errorf("a sequence again: %d", got)
	}
	done, err := c.Cardkit.V1.Card.Settings(t.Context(), larkcardkit.NewSettingsCardReqBuilder().CardId(card).
		Body(larkcardkit.NewSettingsCardReqBodyBuilder().Settings(`{"streaming_mode":false}`).Sequence(4).Build()).Build())
	if err != nil || !done.Success() || r.message(id).Streaming {
		t.Errorf("settings: %v %v", err, done)
	}
	if got := write("after the end", 5); got != 300309 {
		t.Errorf("a write after the end: %d", got)
	}
	whole, err := c.Cardkit.V1.Card.Update(t.Context(), larkcardkit.NewUpdateCardReqBuilder().CardId(card).
		Body(larkcardkit.NewUpdateCardReqBodyBuilder().Card(larkcardkit.NewCardBuilder().Type("card_json").
			Data(`{"schema":"2.0","body":{"elements":[{"tag":"markdown","content":"final"}]}}`).Build()).Sequence(5).Build()).Build())
	if err != nil || !whole.Success() || r.message(id).Text != "final" {
		t.Errorf("whole card: %v %v, %q", err, whole, r.message(id).Text)
	}
	if _, v := r.raw(r.apps[1], "PUT", "/open-apis/cardkit/v1/cards/"+card+"/elements/content/content", `{"content":"x","sequence":9}`); code(v) != 300311 {
		t.Errorf("another app's write: %v", v)
	}
	if n := len(b.events); n != 0 {
		t.Errorf("%d events of edits", n)
	}
}

func TestStreamingEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, err := parseCard(streamingCard)
		if err != nil {
			t.Fatal(err)
		}
		k.configured()
		time.Sleep(streamFor - time.Second)
		if !k.streams() {
			t.Error("it ended too early")
		}
		time.Sleep(time.Second)
		if k.streams() {
			t.Error("it still streams after 10 minutes")
		}
		text := "late"
		for _, want := range []error{errStreamOver, errStreamOff, errStreamOff} {
			if got := setContent(k, &cardChange{Element: "content", Content: &text}); got != want {
				t.Errorf("a text after that: %v, want %v", got, want)
			}
		}
	})
}
