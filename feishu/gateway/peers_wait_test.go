package gateway

import (
	"testing"
	"testing/synctest"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/feishu/peerchat"
)

// peerDesk runs f with a gateway at the default times, whose bot has got mail from the agent "writer".
func peerDesk(t *testing.T, f func(d *desk, mail peerchat.Message)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) { withPeerDesk(t, dir, f) })
}

func withPeerDesk(t *testing.T, dir string, f func(d *desk, mail peerchat.Message)) {
	t.Helper()
	withDeskOf(t, dir, func(o *Options) {
		var err error
		o.Peers, err = peerchat.Open(peerchat.Options{Store: o.Book.Store(), Self: o.Book.Self})
		if err != nil {
			t.Fatal(err)
		}
	}, func(d *desk) {
		mail, err := d.opts.Peers.Receive("writer", "msg_1", "please write it", nil)
		if err != nil {
			t.Fatal(err)
		}
		f(d, mail)
	})
}

// edits changes a text of the bot.
func (r *rig) edits(id, text string) {
	r.t.Helper()
	r.call("PUT", "/open-apis/im/v1/messages/"+id, js(map[string]any{"msg_type": "text", "content": textOf(text)}))
}

// sendsCard answers mail with the card 71 of CardKit, which streams.
func (r *rig) sendsCard(mail peerchat.Message) (id string) {
	r.t.Helper()
	_, id, _ = r.replies(mail, typeCard, `{"type":"card","data":{"card_id":"71"}}`)
	return id
}

// makesCard makes the card 71 of CardKit.
func (d *desk) makesCard(card string) {
	d.do("POST", "cardkit/v1/cards", map[string]any{"type": "card_json", "data": card}, map[string]any{"card_id": "71"})
}

func (r *rig) writesCard(text string, sequence int) {
	r.t.Helper()
	r.call("PUT", "/open-apis/cardkit/v1/cards/71/elements/content/content",
		js(map[string]any{"content": text, "sequence": sequence}))
}

func (r *rig) endsCard(sequence int) {
	r.t.Helper()
	r.call("PATCH", "/open-apis/cardkit/v1/cards/71/settings",
		js(map[string]any{"settings": `{"config":{"streaming_mode":false}}`, "sequence": sequence}))
}

// A bot that takes longer than a card may stream, or than a draft is kept, sends another agent what it says at the end.
func TestSlowAnswersToPeers(t *testing.T) {
	const long = streamLife + 2*time.Minute
	for name, answer := range map[string]func(d *desk, mail peerchat.Message){
		"a streamed card, after a long thought": func(d *desk, mail peerchat.Message) {
			d.makesCard(d.card("Thinking…", true))
			d.sendsCard(mail)
			d.never(long)
			for i, text := range []string{"fu", "func sort", "func sort(xs []int)"} {
				d.writesCard(text, i+1)
				d.never(time.Second)
			}
			d.endsCard(9)
		},
		"a card that is filled without streaming": func(d *desk, mail peerchat.Message) {
			d.makesCard(d.card("Thinking…", false))
			d.sendsCard(mail)
			d.never(long)
			for i, text := range []string{"reading file 1", "reading file 2", "func sort(xs []int)"} {
				d.writesCard(text, i+1)
				d.never(30 * time.Second)
			}
		},
		"a placeholder that is edited after hours": func(d *desk, mail peerchat.Message) {
			_, id, _ := d.replyTo(mail, "Thinking…")
			d.never(30 * time.Hour)
			for _, text := range []string{"func", "func sort", "func sort(xs []int)"} {
				d.edits(id, text)
				d.never(30 * time.Second)
			}
		},
		"progress while it types": func(d *desk, mail peerchat.Message) {
			_, answer := d.call("POST", "/open-apis/im/v1/messages/"+string(mail.ID)+"/reactions",
				`{"reaction_type":{"emoji_type":"Typing"}}`)
			typing := idIn(t, answer, "reaction_id")
			_, id, _ := d.replyTo(mail, "Reading file 1 of 2")
			d.never(4 * time.Minute)
			d.edits(id, "Reading file 2 of 2")
			d.never(4 * time.Minute)
			d.edits(id, "func sort(xs []int)")
			d.never(30 * time.Second)
			d.call("DELETE", "/open-apis/im/v1/messages/"+string(mail.ID)+"/reactions/"+typing, "")
			if synctest.Wait(); len(d.host.said) != 1 {
				t.Error("it is not sent as soon as the bot types no more")
			}
		},
		"a sign of typing that stays": func(d *desk, mail peerchat.Message) {
			d.call("POST", "/open-apis/im/v1/messages/"+string(mail.ID)+"/reactions",
				`{"reaction_type":{"emoji_type":"Typing"}}`)
			d.replyTo(mail, "func sort(xs []int)")
		},
	} {
		t.Run(name, func(t *testing.T) {
			peerDesk(t, func(d *desk, mail peerchat.Message) {
				d.t = t
				answer(d, mail)
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				if m := d.said(); m.Text != "func sort(xs []int)" || m.ChatType != feishu.ChatP2P {
					t.Errorf("the host got %+v", m)
				}
				d.never(time.Hour)
			})
		})
	}
}

// What streams without an end sign goes out in the end, and a text that is left alone soon.
func TestAnswersToPeersGoOut(t *testing.T) {
	peerDesk(t, func(d *desk, mail peerchat.Message) {
		d.makesCard(d.card("Thinking…", true))
		d.sendsCard(mail)
		d.writesCard("func sort(xs []int)", 1)
		d.after(streamLife, "func sort(xs []int)")
		d.replyTo(mail, "and that is all")
		d.after(quiet, "and that is all")
	})
}

// A sign of typing that the bot forgot on earlier mail, or long ago, does not hold back what it says later.
func TestAForgottenSignOfTypingHoldsNothing(t *testing.T) {
	peerDesk(t, func(d *desk, mail peerchat.Message) {
		says := func(text string) {
			d.call("POST", "/open-apis/im/v1/messages?receive_id_type=chat_id",
				js(map[string]any{"receive_id": mail.Chat, "msg_type": "text", "content": textOf(text)}))
		}
		d.call("POST", "/open-apis/im/v1/messages/"+string(mail.ID)+"/reactions",
			`{"reaction_type":{"emoji_type":"Typing"}}`)
		says("func sort(xs []int)")
		d.after(typingHold, "func sort(xs []int)")
		if _, err := d.opts.Peers.Receive("writer", "msg_2", "is it tested?", nil); err != nil {
			t.Fatal(err)
		}
		says("it is")
		d.after(quiet, "it is")
		d.replyTo(mail, "and documented")
		d.after(quiet, "and documented")
	})
}

// A card that the bot recalled is not sent, whatever it still writes into it, also after a restart.
func TestARecalledCardForPeersIsNotSent(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		withPeerDesk(t, dir, func(d *desk, mail peerchat.Message) {
			d.call("DELETE", "/open-apis/im/v1/messages/"+d.sendsCard(mail), "")
		})
		withPeerDesk(t, dir, func(d *desk, mail peerchat.Message) {
			d.writesCard("what it did not want to say", 1)
			if _, answer := d.call("PUT", "/open-apis/cardkit/v1/cards/71", `{"card":{"data":"{}"}}`); codeIn(t, answer) == 0 {
				t.Errorf("a change of the card is answered %s", answer)
			}
			d.never(48 * time.Hour)
		})
	})
}
