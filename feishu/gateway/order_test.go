package gateway

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/feishu"
)

// What the bot says next does not overtake what is about to go out.
func TestOrderWithinAChat(t *testing.T) {
	end := func(d *desk) {
		d.do("PATCH", "cardkit/v1/cards/77/settings", map[string]any{"settings": `{"config":{"streaming_mode":false}}`, "sequence": 9}, nil)
	}
	stream := func(d *desk) {
		d.do("POST", "cardkit/v1/cards", map[string]any{"type": "card_json", "data": d.card("card", true)}, map[string]any{"card_id": "77"})
		d.send(group, "interactive", `{"type":"card","data":{"card_id":"77"}}`)
	}
	for _, c := range []struct {
		name  string
		say   func(d *desk)
		now   []string
		later []string // once it is quiet
	}{
		{"a card, then texts", func(d *desk) {
			d.send(group, "interactive", d.card("card", false))
			d.text("one.")
			d.text("two.")
		}, []string{"card", "one.", "two."}, nil},
		{"texts that may be edited", func(d *desk) {
			d.text("one")
			d.text("two")
			d.send(group, "image", `{"image_key":"img_1"}`)
		}, []string{"one", "two", "[图片]"}, nil},
		{"a streamed card that has ended, then a text", func(d *desk) {
			stream(d)
			end(d)
			d.text("one")
			d.send(group, "image", `{"image_key":"img_1"}`)
		}, []string{"card", "one", "[图片]"}, nil},
		{"a card that still streams holds nobody up", func(d *desk) {
			stream(d)
			d.text("one.")
		}, []string{"one."}, nil},
		{"nor does one elsewhere", func(d *desk) {
			d.book.SawChat("oc_2", feishu.ChatGroup)
			d.send("oc_2", "interactive", d.card("card", false))
			d.text("one.")
		}, []string{"one."}, []string{"card"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			atDesk(t, func(d *desk) {
				said := func() (texts []string) {
					synctest.Wait()
					for len(d.host.said) > 0 {
						texts = append(texts, (<-d.host.said).Text)
					}
					return texts
				}
				c.say(d)
				if got := said(); !slices.Equal(got, c.now) {
					t.Errorf("at once: %q, want %q", got, c.now)
				}
				time.Sleep(settle + time.Millisecond)
				if got := said(); !slices.Equal(got, c.later) {
					t.Errorf("later: %q, want %q", got, c.later)
				}
			})
		})
	}
}

// What a card says comes in late, behind a call that changes something else.
func TestCardKitAnswersInAnotherOrder(t *testing.T) {
	for name, overtakes := range map[string]func(*desk){
		"the end": func(d *desk) {
			d.do("PATCH", "cardkit/v1/cards/77/settings", map[string]any{"settings": `{"config":{"streaming_mode":false}}`, "sequence": 9}, nil)
		},
		"a footer": func(d *desk) {
			d.do("POST", "cardkit/v1/cards/77/elements", map[string]any{"type": "append", "elements": `[{"tag":"hr"}]`, "sequence": 9}, nil)
		},
		"a footer in a batch": func(d *desk) {
			d.do("POST", "cardkit/v1/cards/77/batch_update", map[string]any{"actions": `[{"action":"add_elements","params":{"type":"append","elements":[{"tag":"hr"}]}},{"action":"partial_update_setting","params":{"settings":{"config":{"streaming_mode":false}}}}]`, "sequence": 9}, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			atDesk(t, func(d *desk) {
				d.do("POST", "cardkit/v1/cards", map[string]any{"type": "card_json", "data": d.card("", true)}, map[string]any{"card_id": "77"})
				d.send(group, "interactive", `{"type":"card","data":{"card_id":"77"}}`)
				overtakes(d)
				d.do("PUT", "cardkit/v1/cards/77/elements/content/content", map[string]any{"content": "the answer", "sequence": 8}, nil)
				d.do("PATCH", "cardkit/v1/cards/77/settings", map[string]any{"settings": `{"config":{"streaming_mode":false}}`, "sequence": 10}, nil)
				d.do("PUT", "cardkit/v1/cards/77/elements/content/content", map[string]any{"content": "the", "sequence": 7}, nil)
				d.after(settle, "the answer")
			})
		})
	}
}
