package feishu

import (
	"cmp"

	"feishu-relay/relay"
)

// ParseBotInfo reads Feishu's answer to GET bot/v3/info, or to the ping of OpenClaw's bots:
// the caller's own bot (docs/feishu.md 4.2). Errors wrap [ErrNotAccepted].
func ParseBotInfo(answer []byte) (Self, error) {
	data, err := ReadAnswer[struct {
		Ping struct {
			ID   relay.OpenID `json:"botID"`
			Name string       `json:"botName"`
		} `json:"pingBotInfo"`
	}](answer)
	if err != nil {
		return Self{}, err
	}
	var info struct { // beside the code, and not below data
		Bot struct {
			Name   string       `json:"app_name"`
			OpenID relay.OpenID `json:"open_id"`
		} `json:"bot"`
	}
	_ = lenient(answer, &info) // ReadAnswer has read it
	return Self{Name: cmp.Or(info.Bot.Name, data.Ping.Name), OpenID: cmp.Or(info.Bot.OpenID, data.Ping.ID)}, nil
}

// ParseChat reads Feishu's answer to GET im/v1/chats/{id}: a chat's kind and name
// (docs/feishu.md 3.1). mode is Feishu's word for the kind, "" where the answer does not say it; Kind is ""
// for a mode that is not known. Errors wrap [ErrNotAccepted].
func ParseChat(answer []byte) (chat Chat, mode string, err error) {
	data, err := ReadAnswer[struct {
		Mode string `json:"chat_mode"`
		Name string `json:"name"`
	}](answer)
	chat.Name = data.Name
	switch data.Mode {
	case "group":
		chat.Kind = ChatGroup
	case "topic":
		chat.Kind, chat.Topic = ChatGroup, true
	case "p2p":
		chat.Kind = ChatP2P
	}
	return chat, data.Mode, err
}

// chatBot is a bot as GET im/v1/chats/{id}/members/bots tells it, in both of its spellings
// (docs/feishu.md 4.2).
type chatBot struct {
	BotID   relay.OpenID `json:"bot_id"`
	OpenID  relay.OpenID `json:"open_id"`
	BotName string       `json:"bot_name"`
	Name    string       `json:"name"`
}

func (b *chatBot) bot() Bot {
	return Bot{OpenID: cmp.Or(b.BotID, b.OpenID), Name: cmp.Or(b.BotName, b.Name)}
}

// ParseChatBots reads a page of Feishu's answer to GET im/v1/chats/{id}/members/bots. Errors
// wrap [ErrNotAccepted].
func ParseChatBots(answer []byte) (bots []Bot, err error) {
	data, err := ReadAnswer[struct {
		Items []chatBot `json:"items"`
	}](answer)
	for _, item := range data.Items {
		bots = append(bots, item.bot())
	}
	return bots, err
}
