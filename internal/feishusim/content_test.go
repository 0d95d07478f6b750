package feishusim

import (
	"encoding/json"
	"strings"
	"testing"
)

// testRoom is a server with BotA, BotB, Ann and Anna in a chat, and no listener.
func testRoom() (s *Server, a, b App, in *chat) {
	s = New(Options{})
	a, b = s.AddApp(App{Name: "BotA"}), s.AddApp(App{Name: "小明"})
	ann, anna := s.AddUser("Ann"), s.AddUser("Anna")
	g := s.AddGroup("Lab", a.ID, b.ID, ann.ID, anna.ID)
	return s, a, b, s.chats[g.ID]
}

func TestWhatIsReceived(t *testing.T) {
	s, a, b, in := testRoom()
	own, foreign := s.OpenID(a.ID, b.ID), s.OpenID(b.ID, b.ID)
	for _, tt := range []struct {
		name, msgType, sent, received, text string
		mentions                            int
	}{
		{"text", "text", `{"text":"hi"}`, `{"text":"hi"}`, "hi", 0},
		{"at-tag", "text", textOf(`<at user_id="` + own + `">x</at> hi`), `{"text":"@_user_1 hi"}`, "@小明 hi", 1},
		{"the same twice", "text", textOf(`<at user_id="` + own + `"></at><at user_id=` + own + `></at>`), `{"text":"@_user_1@_user_1"}`, "@小明@小明", 1},
		{"another app's id", "text", textOf(`<at user_id="` + foreign + `">Ming</at> hi`), `{"text":"@Ming hi"}`, "@Ming hi", 0},
		{"an app id", "text", textOf(`<at user_id="` + a.ID + `">x</at> hi`), compact(map[string]string{"text": `<at user_id="` + a.ID + `">x</at> hi`}), `<at user_id="` + a.ID + `">x</at> hi`, 0},
		{"everybody", "text", textOf(`<at user_id="all"></at> hi`), `{"text":"@_all hi"}`, "@所有人 hi", 0},
		{"a plain name", "text", `{"text":"@小明 hi"}`, `{"text":"@小明 hi"}`, "@小明 hi", 0},
		{"styles", "text", `{"text":"<b>a</b> & <i>b</i>"}`, `{"text":"a & b"}`, "a & b", 0},
		{"post", "post", `{"zh_cn":{"title":"T","content":[[{"tag":"text","text":"a "},{"tag":"at","user_id":"` + own + `"}],[{"tag":"img","image_key":"img_1"}]]}}`,
			`{"content":[[{"tag":"text","text":"a "},{"tag":"at","user_id":"@_user_1","user_name":"小明"}],[{"image_key":"img_1","tag":"img"}]],"title":"T"}`,
			"T\na @小明\n[image]", 1},
		{"post without locale", "post", `{"title":"","content":[[{"tag":"a","text":"x","href":"u"}]]}`, `{"content":[[{"href":"u","tag":"a","text":"x"}]],"title":""}`, "x", 0},
		{"md", "post", `{"en_us":{"content":[[{"tag":"md","text":"# Head\n**<at user_id=\"` + own + `\">x</at>** see"}]]}}`,
			`{"content":[[{"style":[],"tag":"text","text":"Head"}],[{"style":[],"tag":"at","user_id":"@_user_1","user_name":"小明"},{"style":[],"tag":"text","text":" see"}]],` +
				`"content_v2":[[{"tag":"md","text":"# Head\n**@_user_1** see"}]],"title":""}`,
			"# Head\n**@小明** see", 1},
		{"image", "image", `{"image_key":"img_1"}`, `{"image_key":"img_1"}`, "[image]", 0},
		{"file", "file", `{"file_key":"f","file_name":"a.pdf"}`, `{"file_key":"f","file_name":"a.pdf"}`, "[file a.pdf]", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := converter{s: s, sender: a.ID, chat: in}
			received, text, err := c.convert(tt.msgType, tt.sent)
			if err != nil {
				t.Fatal(err)
			}
			if received != tt.received {
				t.Errorf("received: got %s, want %s", received, tt.received)
			}
			if text != tt.text {
				t.Errorf("text: got %q, want %q", text, tt.text)
			}
			if len(c.mentions) != tt.mentions {
				t.Errorf("mentions: got %v, want %d", c.mentions, tt.mentions)
			}
		})
	}
}

func TestWhatAPersonTypes(t *testing.T) {
	s, _, b, in := testRoom()
	for _, tt := range []struct{ typed, received string }{
		{"@Anna hi", "@_user_1 hi"},
		{"@Ann @Anna", "@_user_1 @_user_2"},
		{"@Annabel", "@Annabel"},
		{"@小明请看", "@_user_1请看"},
		{"mail ann@Ann.example", "mail ann@_user_1.example"},
		{"@all @所有人", "@_all @_all"},
		{"@allison @nobody @", "@allison @nobody @"},
		{`<at user_id="all">x</at>`, `<at user_id="all">x</at>`},
	} {
		c := converter{s: s, chat: in, literal: true}
		if got, shown := c.text(tt.typed); got != tt.received || shown != tt.typed {
			t.Errorf("%s: got %q shown %q, want %q", tt.typed, got, shown, tt.received)
		}
	}
	c := converter{s: s, chat: in, literal: true}
	c.lead(b.ID)
	if got, shown := c.text("look"); got != "@_user_1 look" || shown != "@小明 look" {
		t.Errorf("a mention that the text does not name: %q, %q", got, shown)
	}
}

func TestWhatIsReceivedOfACard(t *testing.T) {
	s, a, b, in := testRoom()
	k, err := parseCard(`{"schema":"2.0","header":{"title":{"tag":"plain_text","content":"Head"}},"body":{"elements":[` +
		`{"tag":"markdown","content":"<at id=` + s.OpenID(a.ID, b.ID) + `></at> and <at ids=all,ou_x></at>","element_id":"m"},` +
		`{"tag":"column_set","columns":[{"tag":"column","elements":[{"tag":"markdown","content":"inside"}]}]}]}}`)
	if err != nil {
		t.Fatal(err)
	}
	c := &converter{s: s, sender: a.ID, chat: in}
	k.initial = c.card(k.tree)
	if got, want := k.text(c), "Head\n@小明 and @所有人@\ninside"; got != want {
		t.Errorf("text: got %q, want %q", got, want)
	}
	var event struct {
		Title string `json:"title"`
		DSL   string `json:"user_dsl"`
	}
	if err := json.Unmarshal([]byte(k.received()), &event); err != nil {
		t.Fatal(err)
	}
	if event.Title != "Head" || !strings.Contains(event.DSL, `mention_key=@_user_1></at>`) || len(c.mentions) != 1 {
		t.Errorf("event: %+v, mentions %v", event, c.mentions)
	}
	for kind, want := range map[string]string{
		"": upgrade, "user_card_content": `\"schema\":\"2.0\"`, "raw_card_content": `\"property\":{\"content\"`,
	} {
		if got := k.content(kind); !strings.Contains(got, want) {
			t.Errorf("read as %q: got %s, want %s in it", kind, got, want)
		}
	}
}

func FuzzContent(f *testing.F) {
	s, a, b, in := testRoom()
	f.Add("text", textOf(`<at user_id="`+s.OpenID(a.ID, b.ID)+`">x</at>`))
	f.Add("post", `{"zh_cn":{"content":[[{"tag":"md","text":"> @_user_1 **x**"}],[{"tag":"at","user_id":"all"}]]}}`)
	f.Add("interactive", `{"schema":"2.0","body":{"elements":[{"tag":"markdown","content":"<at ids=a,b></at>"}]}}`)
	f.Add("interactive", `{"type":"template","data":{}}`)
	f.Fuzz(func(t *testing.T, msgType, content string) {
		c := converter{s: s, sender: a.ID, chat: in}
		if msgType == "interactive" {
			k, err := parseCard(content)
			if err != nil {
				return
			}
			k.initial = c.card(k.tree)
			for _, got := range []string{k.received(), k.content(""), k.content("raw_card_content"), k.content("user_card_content")} {
				if object(got) != nil {
					t.Errorf("%s became %s", content, got)
				}
			}
			_ = k.text(&c)
			return
		}
		received, _, err := c.convert(msgType, content)
		if err == nil && object(received) != nil {
			t.Errorf("%s became %s", content, received)
		}
	})
}
