package content_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/feishu/content"
	"feishu-relay/relay"
)

var tomAndBot = []content.Mention{
	{Key: "@_user_1", OpenID: "ou_tom", UserID: "tom1", Name: "Tom"},
	{Key: "@_user_12", OpenID: "ou_b", AppID: "cli_b", UnionID: "on_b", Name: "小明", Type: "bot"},
	{Key: "@_user_3", OpenID: "ou_nameless"},
}

func text(msgType, raw string, mentions []content.Mention) string {
	d := content.Parse(msgType, raw, mentions)
	return d.Text()
}

func keys(msgType, raw string) []string {
	d := content.Parse(msgType, raw, nil)
	return d.Keys()
}

func files(msgType, raw string) []relay.File {
	d := content.Parse(msgType, raw, nil)
	return d.Files()
}

func TestText(t *testing.T) {
	for _, tt := range []struct{ name, msgType, raw, want string }{
		{"text", "text", `{"text":"hi"}`, "hi"},
		{"keys", "text", `{"text":"@_user_1 and @_user_12看 @_user_2"}`, "@Tom and @小明看 @_user_2"},
		{"a key without a name", "text", `{"text":"@_user_3 x"}`, "@_user_3 x"},
		{"everyone", "text", `{"text":"@_all 开会, not @_allx"}`, "@所有人 开会, not @_allx"},
		{"a tag with a name", "text", `{"text":"<at user_id=\"ou_x\">Ann &amp; Co</at> hi"}`, "@Ann & Co hi"},
		{"a tag whose name is in the mentions", "text", `{"text":"<at user_id=\"ou_tom\"></at> hi"}`, "@Tom hi"},
		{"the mentions' name wins", "text", `{"text":"<at user_id=\"tom1\">x</at>"}`, "@Tom"},
		{"a tag for all", "text", `{"text":"<at user_id=\"all\"></at>"}`, "@所有人"},
		{"a tag nobody can name", "text", `{"text":"<at user_id=\"ou_x\"></at> hi"}`, `<at user_id="ou_x"></at> hi`},
		{"a card's tags", "text", `{"text":"<at id=ou_tom></at><at ids=cli_b,on_b></at><at email=a@b.c></at>"}`, "@Tom@小明 @小明@a@b.c"},
		{"a received card's tag goes by its key", "text", `{"text":"<at id=ou_other mention_key=@_user_12></at>"}`, "@小明"},
		{"escaped quotes", "text", `{"text":"<at user_id=\\\"ou_tom\\\">x</at>"}`, "@Tom"},
		{"other spellings", "text", `{"text":"<AT user_id='ou_tom'/>, <at  id = ou_tom ></at>"}`, "@Tom, @Tom"},
		{"no tags", "text", `{"text":"<attr id=1> <at\nx> a<b @ <"}`, "<attr id=1> <at\nx> a<b @ <"},
		{"a name is no key", "text", `{"text":"<at user_id=\"q\">@_user_1</at>"}`, "@_user_1"},
		{"no JSON", "text", `This message was recalled`, "This message was recalled"},
		{"JSON that is no object", "text", `[1]`, "[1]"},
		{"without text", "text", `{}`, ""},
		{"post of a receiver", "post", `{"title":"标题","content":[[{"tag":"text","text":"a "},{"tag":"a","href":"https://x.y/z","text":"link"},{"tag":"at","user_id":"@_user_1","user_name":"T"}],[],[{"tag":"img","image_key":"img_1"},{"tag":"media","file_key":"f"},{"tag":"emotion","emoji_type":"SMILE"}]]}`,
			"标题\na link (https://x.y/z)@Tom\n\n[图片][视频][SMILE]"},
		{"post of a sender", "post", `{"en_us":{"content":[[{"tag":"text","text":"en"}]]},"zh_cn":{"title":"","content":[[{"tag":"md","text":"**中** <at user_id=\"ou_tom\">x</at>"}]]}}`, "**中** @Tom"},
		{"another locale", "post", `{"ja_jp":{"content":[[{"tag":"text","text":"日"}]]},"fr_fr":{"content":[[{"tag":"text","text":"fr"}]]}}`, "fr"},
		{"wrapped post", "post", `{"post":{"zh_cn":{"content":[[{"tag":"text","text":"x"}]]}}}`, "x"},
		{"content_v2 keeps the markdown", "post", `{"title":"","content":[[{"tag":"text","text":"flat"}]],"content_v2":[[{"tag":"md","text":"- a\n- @_user_1"}]]}`, "- a\n- @Tom"},
		{"an empty content_v2", "post", `{"content":[[{"tag":"text","text":"flat"}]],"content_v2":[]}`, "flat"},
		{"blocks", "post", "{\"content\":[[{\"tag\":\"text\",\"text\":\"see\"},{\"tag\":\"code_block\",\"language\":\"GO\",\"text\":\"a := `x`\\n\"},{\"tag\":\"text\",\"text\":\"end\"}],[{\"tag\":\"hr\"}]]}", "see\n```GO\na := `x`\n```\nend\n---"},
		{"code with a fence in it", "post", "{\"content\":[[{\"tag\":\"code_block\",\"text\":\"```\\nx\\n```\"}]]}", "````\n```\nx\n```\n````"},
		{"at nodes", "post", `{"content":[[{"tag":"at","user_id":"ou_x","user_name":"Ann"},{"tag":"at","user_id":"all"},{"tag":"at","user_id":"@_user_9"},{"tag":"at","user_id":"ou_b"},{"tag":"at"}]]}`, "@Ann@所有人@_user_9@小明"},
		{"text behind an at node", "post", `{"content":[[{"tag":"at","user_id":"@_user_1"},{"tag":"text","text":"noted by anna"}],[{"tag":"at","user_id":"@_user_1"},{"tag":"text","text":"2 notes"}],[{"tag":"at","user_id":"ou_b"},{"tag":"text","text":"看"}],[{"tag":"at","user_id":"ou_b"},{"tag":"text","text":", look"}]]}`,
			"@Tom noted by anna\n@Tom 2 notes\n@小明 看\n@小明, look"},
		{"text behind a tag", "post", `{"content":[[{"tag":"md","text":"<at user_id=\"ou_tom\"></at>noted, <at user_id=\"ou_tom\"></at>看"}]]}`, "@Tom noted, @Tom看"},
		{"text behind a card's at node", "interactive", `{"elements":[[{"tag":"at","user_id":"@_user_1"},{"tag":"text","text":"noted"}]]}`, "@Tom noted"},
		{"un_escape", "post", `{"content":[[{"tag":"text","un_escape":true,"text":"a&nbsp;&lt;b"},{"tag":"text","text":"&lt;"}]]}`, "a\u00a0<b&lt;"},
		{"links without text", "post", `{"content":[[{"tag":"a","href":"u"},{"tag":"a","text":"t"},{"tag":"a","text":"u","href":"u"}]]}`, "utu"},
		{"a single node as a paragraph", "post", `{"content":[{"tag":"text","text":"x"},7,[7,"y"]]}`, "x"},
		{"an unknown node's text", "post", `{"content":[[{"tag":"new","text":"x"}]]}`, "x"},
		{"no post", "post", `{"zh_cn":"x"}`, "[富文本]"},
		{"image", "image", `{"image_key":"img_1"}`, "[图片]"},
		{"file", "file", `{"file_key":"f","file_name":"a.pdf"}`, "[文件] a.pdf"},
		{"file without a name", "file", `{"file_key":"f"}`, "[文件]"},
		{"folder", "folder", `{"file_key":"f","file_name":"x\ny"}`, "[文件夹] x y"},
		{"audio", "audio", `{"file_key":"f","duration":2000}`, "[语音]"},
		{"media", "media", `{"file_key":"f"}`, "[视频]"},
		{"sticker", "sticker", `{"file_key":"f"}`, "[表情]"},
		{"merge_forward is no JSON", "merge_forward", `Merged and Forwarded Message`, "[合并转发]"},
		{"share_chat", "share_chat", `{"chat_id":"oc"}`, "[群名片]"},
		{"share_user", "share_user", `{"user_id":"ou"}`, "[个人名片]"},
		{"location", "location", `{"name":"x"}`, "[位置]"},
		{"unknown", "hologram", `{"text":"x"}`, "[hologram]"},
		{"no type", "", `{"text":"x"}`, "[消息]"},
		{"broken image", "image", ``, "[图片]"},
		{"too deep", "post", strings.Repeat(`{"post":`, 40) + "1" + strings.Repeat("}", 40), strings.Repeat(`{"post":`, 40) + "1" + strings.Repeat("}", 40)},
		{"too large", "text", `{"text":"` + strings.Repeat("x", 1<<20) + `"}`, "[文本]"},
		{"card by id", "interactive", `{"type":"card","data":{"card_id":"7355"}}`, ""},
		{"template with a title", "interactive", `{"type":"template","data":{"template_id":"AAq","template_variable":{"sub_title":"二","main_Title":"一","x":"no"}}}`, "一\n二\nno"},
		{"template", "interactive", `{"type":"template","data":{"template_id":"AAq"}}`, "[卡片]"},
		{"received card", "interactive", `{"title":"请升级","elements":[[{"tag":"text","text":"请升级"}]],"user_dsl":"{\"schema\":\"2.0\",\"body\":{\"elements\":[{\"tag\":\"markdown\",\"content\":\"<at id=ou_q mention_key=@_user_1></at> hi\"}]}}"}`, "@Tom hi"},
		{"legacy card", "interactive", `{"title":"T","elements":[[{"tag":"text","text":"a"},{"tag":"a","href":"h","text":"b"},{"tag":"at","user_id":"@_user_1","user_name":"x"}],[{"tag":"img","image_key":"i"}],[{"tag":"text","text":"c"}],[{"tag":"note","elements":[{"tag":"text","text":"foot"}]}]]}`, "T\nab (h)@Tom\nc"},
		{"broken card", "interactive", `x`, "[卡片]"},
		{"broken user_dsl", "interactive", `{"user_dsl":"x"}`, "[卡片]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(text(tt.msgType, tt.raw, tomAndBot), tt.want); diff != "" {
				t.Errorf("text (-got +want):\n%s", diff)
			}
		})
	}
}

func TestWithNamesKeepsWhatHasNoName(t *testing.T) {
	const text = "<at id=ou_x></at> @_user_1 a@b.c"
	if got := content.WithNames(text, nil); got != text {
		t.Errorf("got %q", got)
	}
	got := content.WithNames(text, []content.Mention{{OpenID: "ou_x", Name: "@A\nB"}, {Key: "@_user_1", Name: "<at id=ou_x></at>"}})
	if want := "@A B @<at id=ou_x></at> a@b.c"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestKeys(t *testing.T) {
	for _, tt := range []struct {
		name, msgType, raw string
		want               []string
	}{
		{"image", "image", `{"image_key":"img_1"}`, []string{"img_1"}},
		{"media", "media", `{"file_key":"file_1","image_key":"img_1","duration":1}`, []string{"file_1", "img_1"}},
		{"post", "post", `{"zh_cn":{"content":[[{"tag":"img","image_key":"b"},{"tag":"media","file_key":"c","image_key":"a"}],[{"tag":"img","image_key":"b"}]]}}`, []string{"b", "c", "a"}},
		{"card", "interactive", `{"elements":[{"tag":"img","img_key":"i1"},{"tag":"markdown","content":"![x](img_v3_02-a) ![y](https://z)"}]}`, []string{"i1", "img_v3_02-a"}},
		{"received card", "interactive", `{"elements":[[{"tag":"img","image_key":"placeholder"}]],"user_dsl":"{\"body\":{\"elements\":[{\"tag\":\"img\",\"img_key\":\"i2\"}]}}"}`, []string{"i2"}},
		{"a text has none", "text", `{"text":"x","image_key":"y"}`, nil},
		{"a value that looks like a name", "post", `{"a":"image_key","b":"x","c":["image_key","y"]}`, nil},
		{"other types", "image", `{"image_key":7,"file_key":{"image_key":"in"}}`, nil},
		{"broken", "image", `{"image_key":"a","file_key`, nil},
		{"a closing bracket", "image", `]]`, nil},
		{"control characters", "image", `{"image_key":"a\u0000"}`, nil},
		{"nothing", "image", ``, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(keys(tt.msgType, tt.raw), tt.want); diff != "" {
				t.Errorf("keys (-got +want):\n%s", diff)
			}
		})
	}
	var many strings.Builder
	for i := range 300 {
		fmt.Fprintf(&many, `[{"tag":"img","image_key":"img_%d"}],`, i)
	}
	if got := keys("post", `{"content":[`+many.String()+"0]}"); len(got) != 100 || got[99] != "img_99" {
		t.Errorf("%d keys of 300", len(got))
	}
}

func TestFiles(t *testing.T) {
	image := func(key string) relay.File { return relay.File{Key: key, Type: relay.FileImage} }
	file := func(key, name string) relay.File { return relay.File{Key: key, Type: relay.FileOther, Name: name} }
	for _, tt := range []struct {
		name, msgType, raw string
		want               []relay.File
	}{
		{"image", "image", `{"image_key":"img_1"}`, []relay.File{image("img_1")}},
		{"file", "file", `{"file_key":"file_1","file_name":"a.txt"}`, []relay.File{file("file_1", "a.txt")}},
		{"its name first", "file", `{"file_name":"a.txt","file_key":"file_1"}`, []relay.File{file("file_1", "a.txt")}},
		{"audio", "audio", `{"file_key":"file_1","duration":1}`, []relay.File{file("file_1", "")}},
		{"video", "media", `{"file_key":"file_1","image_key":"img_1","file_name":"a.mp4","duration":1}`,
			[]relay.File{file("file_1", "a.mp4"), image("img_1")}},
		{"post", "post", `{"content":[[{"tag":"img","image_key":"b"},{"tag":"media","file_key":"c","image_key":"a"}],[{"tag":"text","text":"x"}]]}`,
			[]relay.File{image("b"), file("c", ""), image("a")}},
		{"card", "interactive", `{"user_dsl":"{\"body\":{\"elements\":[{\"tag\":\"img\",\"img_key\":\"i2\"}]}}"}`, []relay.File{image("i2")}},
		{"a sticker cannot be fetched", "sticker", `{"file_key":"file_1"}`, nil},
		{"a text has none", "text", `{"text":"x","image_key":"y"}`, nil},
		{"a name on several lines", "file", `{"file_key":"k","file_name":"a\nb\u0000"}`, []relay.File{file("k", "a b")}},
		{"a long name", "file", `{"file_key":"k","file_name":"` + strings.Repeat("字", 400) + `"}`, []relay.File{file("k", strings.Repeat("字", 170))}},
		{"a name of nothing", "file", `{"file_name":"a","x":{"file_key":"k"}}`, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(files(tt.msgType, tt.raw), tt.want); diff != "" {
				t.Errorf("files (-got +want):\n%s", diff)
			}
		})
	}
	if got := keys("sticker", `{"file_key":"file_1"}`); len(got) != 1 {
		t.Errorf("keys of a sticker: %v", got)
	}
}

func TestPlaceholder(t *testing.T) {
	for _, text := range []string{
		"", " \n", ".", "...", "…", "......", "。。。", "· · ·", "⏳", "⏳ …", "⠋", "▌", "◐", "🤔", "💭...", "---", "|", "🔄", "⚙️", "✍️",
		"Thinking…", "Thinking...", "thinking", "[Generating...]", "*Thinking...*", "_thinking_", "**Thinking…**", "> Thinking…", "🤔 Thinking...",
		"⏳ Processing...", "Loading…", "Please wait...", "Working on it…", "Thinking... (3s)", "Thinking… 12 s", "Generating response ▌", "Typing...",
		"思考中", "思考中...", "【思考中】", "正在思考…", "正在输入…", "对方正在输入...", "生成中", "⌛ 生成中，请稍候", "正在生成回复…", "处理中…", "请稍候", "思考中… 12秒", "思考中（3.5s）", "加载中",
		"`思考中`", "「思考中」",
	} {
		if !content.Placeholder(text) {
			t.Errorf("%q is none", text)
		}
	}
	for _, text := range []string{
		"ok", "好", "👍", "✅", "?", "？", "!", "😀", "42", "5s", "30秒", "3", "1.5s", "-1", "Thinking about it, I would say no.", "Thinking: yes", "思考中的人", "我在思考中", "正在处理你的订单：已发货",
		"Loading dock 3", "Done.", "等", "a", "C", "+1", "[图片]", "[卡片]", "@Tom", "@所有人", "处理完成", "working", "no problem…", "Processing finished", "0",
		strings.Repeat("思考中", 50),
	} {
		if content.Placeholder(text) {
			t.Errorf("%q is one", text)
		}
	}
}
