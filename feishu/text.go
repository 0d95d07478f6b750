package feishu

import "strings"

// Text returns what a person reads of m; see [Text].
func (m *Message) Text() string { return Text(m.Type, m.Content, m.Mentions) }

// Text returns what a person reads of a content (docs/feishu.md 3.2, 5.1): the words of
// texts, posts and cards with "@Name" for mentions, and a word in brackets, such
// as "[图片]", for what has no words. A card that is sent by its card_id gives "":
// its words are in CardKit's calls. A content of more than 1 MiB is shown by its
// type alone, and a text or post that is no JSON as it stands.
func Text(msgType, content string, mentions []Mention) string {
	word := words[msgType]
	if word == "" {
		word = "[" + oneLine(msgType) + "]"
	}
	if len(content) > maxContent {
		return word
	}
	v, err := object([]byte(content), maxContent)
	if err != nil && (msgType == "text" || msgType == "post") {
		return WithNames(content, mentions) // "This message was recalled" is no JSON
	}
	if err != nil {
		return word
	}
	switch msgType {
	case "text":
		return WithNames(field(v, "text"), mentions)
	case "post":
		return WithNames(postText(v), mentions)
	case "interactive":
		card, err := newCard(v)
		if err != nil {
			return word
		}
		return WithNames(card.Text(), mentions)
	case "file", "folder":
		return strings.TrimRight(word+" "+oneLine(field(v, "file_name")), " ")
	}
	return word
}

// Mentioned returns whom the at-tags and at-nodes of a content mention by their ids,
// in order and each once: those of a text, a post or a card as its sender writes it.
func Mentioned(msgType, content string) []Mention {
	v, err := object([]byte(content), maxContent)
	if err != nil {
		return nil
	}
	switch msgType {
	case "text":
		return tagged(field(v, "text"))
	case "post":
		return tagged(postText(v))
	case "interactive":
		if card, err := newCard(v); err == nil {
			return card.Mentions()
		}
	}
	return nil
}

// words stand for what has none.
var words = map[string]string{
	"text":                 "[文本]",
	"post":                 "[富文本]",
	"interactive":          "[卡片]",
	"image":                "[图片]",
	"file":                 "[文件]",
	"folder":               "[文件夹]",
	"audio":                "[语音]",
	"media":                "[视频]",
	"video":                "[视频]",
	"sticker":              "[表情]",
	"share_chat":           "[群名片]",
	"share_user":           "[个人名片]",
	"merge_forward":        "[合并转发]",
	"location":             "[位置]",
	"system":               "[系统消息]",
	"todo":                 "[任务]",
	"vote":                 "[投票]",
	"hongbao":              "[红包]",
	"video_chat":           "[视频会议]",
	"calendar":             "[日程]",
	"general_calendar":     "[日程]",
	"share_calendar_event": "[日程]",
	"":                     "[消息]",
}
