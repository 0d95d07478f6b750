package sidecar

import (
	"testing"
	"time"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

// A reply to a message that Feishu does not have stays in the topic where it was
// said, whatever a person said elsewhere.
func TestWhatAMessageThatFeishuLacksIsAbout(t *testing.T) {
	t.Parallel()
	s := aSidecar(t)
	s.chats.noteTalk(talk{Channel: "feishu", ChatID: "oc_x", ChatType: feishu.ChatGroup, MessageID: "om_newest", At: relay.MillisOf(time.Now())})
	for _, tt := range []struct {
		name  string
		m     relay.Message
		about relay.MessageID
	}{
		{"it answers a message", relay.Message{ParentID: "om_parent", RootID: "om_root", ThreadID: "omt_1"}, "om_parent"},
		{"in a topic it answers what Feishu lacks, too", relay.Message{ParentID: "api:1", RootID: "om_root", ThreadID: "omt_1"}, "om_root"},
		{"in a topic it answers nothing", relay.Message{RootID: "om_root", ThreadID: "omt_1"}, "om_root"},
		{"in the chat", relay.Message{ParentID: "api:1"}, "om_newest"},
	} {
		tt.m.Channel, tt.m.ChatID, tt.m.RelayMsgID = "feishu", "oc_x", "api:2"
		shown := newGatewayDoor(s).idOf(&tt.m)
		if about, ok := feishu.AboutMail(shown); !ok || about != tt.about {
			t.Errorf("%s: it is shown as %s, about %s; want about %s", tt.name, shown, about, tt.about)
		}
	}
}
