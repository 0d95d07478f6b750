package send

import (
	"strings"
	"testing"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

func TestTag(t *testing.T) {
	const b, ann, anna = `<at user_id="ou_b">BotB</at>`, `<at user_id="ou_ann">Ann</at>`, `<at user_id="ou_anna">Anna Lee</at>`
	tag := senderWith(t, nil).tagger([]relay.Mention{
		{OpenID: "ou_b", Name: "BotB", AgentName: "agent_b", Key: "@_user_1"},
		{OpenID: "ou_ann", Name: "Ann"},
		{OpenID: "ou_anna", Name: "Anna Lee", Key: "@all"},
		{OpenID: "ou_x", Name: "Twin"},
		{OpenID: "ou_y", Name: "twin"},
		{OpenID: "ou_ming", Name: "小明"},
		{Name: "Nobody"},
	})
	for _, tt := range []struct{ name, text, want string }{
		{"a name", "hi @BotB, look", "hi " + b + ", look"},
		{"another case", "@botb", b},
		{"the relay's name", "@agent_b hi", `<at user_id="ou_b">agent_b</at> hi`},
		{"a key", "@_user_1 hi", `<at user_id="ou_b">_user_1</at> hi`},
		{"another key", "@_user_10 hi", "@_user_10 hi"},
		{"a longer name", "@Anna Lee and @Ann", anna + " and " + ann},
		{"a part of a name", "@Anna @Ann-Marie @ann.example @BotBee", "@Anna @Ann-Marie @ann.example @BotBee"},
		{"the end of a sentence", "ask @Ann. Or (@BotB)!", "ask " + ann + ". Or (" + b + ")!"},
		{"Chinese around it", "请@小明看一下，@BotB请看", `请<at user_id="ou_ming">小明</at>看一下，` + b + "请看"},
		{"one after the other", "@BotB@Ann", b + ann},
		{"ambiguous", "@Twin hi", "@Twin hi"},
		{"everybody", "@all @所有人", "@all @所有人"},
		{"nobody we know", "@Nobody @Bob", "@Nobody @Bob"},
		{"no name", "@ BotB BotB", "@ BotB BotB"},
		{"an e-mail address", "joe@Ann joe.x@BotB", "joe@Ann joe.x@BotB"},
		{"URLs", "https://x.com/@BotB http://h/?u=@Ann medium.com/@Ann", "https://x.com/@BotB http://h/?u=@Ann medium.com/@Ann"},
		{"inline code", "`@BotB` and ``a`@Ann`` @Ann", "`@BotB` and ``a`@Ann`` " + ann},
		{"a lone backtick", "it`s @Ann", "it`s " + ann},
		{"fenced code", "```\n@Ann\n```\n@Ann\n~~~\n@Ann\n```\n", "```\n@Ann\n```\n" + ann + "\n~~~\n@Ann\n```\n"},
		{"a quote", "> @Ann said\n@Ann", "> @Ann said\n" + ann},
		{"tags stay", `<at user_id="ou_z">Ann</at> <at user_id="ou_q">@Ann</at> @Ann`, `<at user_id="ou_z">Ann</at> <at user_id="ou_q">@Ann</at> ` + ann},
		{"no tag", "a <at b @Ann", "a <at b " + ann},
		{"an @ at the end", "@", "@"},
		{"no UTF-8", "@\xff @Ann", "@\xff " + ann},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := tag(tt.text); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func senderWith(t testing.TB, bots []feishu.Bot) *Sender {
	c := newFake(t).sender(t)
	c.book.LearnSelf(feishu.Self{AppID: "cli_self", OpenID: "ou_self", Name: "Me"})
	for _, b := range bots {
		c.book.LearnBot(b)
	}
	return c
}

func TestTaggerKnowsWhom(t *testing.T) {
	c := senderWith(t, []feishu.Bot{
		{OpenID: "ou_b", Name: "BotB", Agent: "agent_b"},
		{OpenID: "ou_t1", Name: "Twin"},
		{OpenID: "ou_t2", Name: "Twin"},
		{OpenID: "ou_self", Name: "Me"},
		{AppID: "cli_c", Name: "BotC"},
	})
	tag := c.tagger([]relay.Mention{
		{Name: "张三", OpenID: "ou_zhang"},
		{Name: "Helper", AgentName: "agent_b"},
		{Name: "Myself", OpenID: "ou_self"},
	})
	const text = "@BotB @Twin @Me @BotC @张三 @Helper @Myself"
	const want = `<at user_id="ou_b">BotB</at> @Twin @Me @BotC <at user_id="ou_zhang">张三</at> <at user_id="ou_b">Helper</at> @Myself`
	if got := tag(text); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	tag = c.tagger([]relay.Mention{{Name: "Twin", OpenID: "ou_t2"}})
	if got, want := tag("@Twin"), `<at user_id="ou_t2">Twin</at>`; got != want {
		t.Errorf("a mention given with the send: got %s, want %s", got, want)
	}
}

func FuzzTag(f *testing.F) {
	tag := senderWith(f, []feishu.Bot{{OpenID: "ou_b", Name: "BotB"}, {OpenID: "ou_ming", Name: "小明"}}).tagger(nil)
	f.Add("hi @BotB `@小明` <at user_id=\"x\">y</at>")
	f.Fuzz(func(t *testing.T, text string) {
		got := tag(text)
		back := strings.NewReplacer(`<at user_id="ou_b">BotB</at>`, "@BotB", `<at user_id="ou_ming">小明</at>`, "@小明")
		if back.Replace(got) != back.Replace(text) && !strings.EqualFold(back.Replace(got), back.Replace(text)) {
			t.Errorf("tag(%q) = %q", text, got)
		}
	})
}
