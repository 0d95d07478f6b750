package relay_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/relay"
)

// sevenFields is a message as a program writes it that knows the original
// contract and nothing else.
const sevenFields = `{"relay_msg_id": "r1", "channel": "feishu", "chat_id": "oc_x", "content": "请 @BotB 看一下",` +
	` "sender_bot_open_id": "ou_a", "sender_agent_name": "agent_a", "metadata": {"chat_type": "group"}}`

func base() relay.Message {
	return relay.Message{RelayMsgID: "r1", Channel: "feishu", ChatID: "oc_x", Content: "hi",
		SenderBotOpenID: "ou_a", SenderAgentName: "agent_a", Metadata: relay.Metadata{"chat_type": json.RawMessage(`"group"`)}}
}

func TestDecode(t *testing.T) {
	with := func(extra string) string {
		return `{"relay_msg_id":"r1","chat_id":"oc_x","content":"hi","sender_bot_open_id":"ou_a","sender_agent_name":"agent_a",` +
			`"channel":"feishu","metadata":{"chat_type":"group"}` + extra + `}`
	}
	for _, tt := range []struct {
		name, line string
		want       func(*relay.Message)
	}{
		{"seven fields are a message", sevenFields, func(m *relay.Message) { m.Content = "请 @BotB 看一下" }},
		{"newline at the end", sevenFields + "\n", func(m *relay.Message) { m.Content = "请 @BotB 看一下" }},
		{"unknown fields are ignored", with(`,"version":9,"nested":{"chat_id":"oc_other"},"list":[1,{}]`), nil},
		{"nulls are absent fields", with(`,"message_id":null,"ts":null,"mentions":null,"seq":null`), nil},
		{"ts as a number", with(`,"ts":1795211093522`), func(m *relay.Message) { m.TS = 1795211093522 }},
		{"ts as a string", with(`,"ts":"1795211093522"`), func(m *relay.Message) { m.TS = 1795211093522 }},
		{"ts with a fraction", with(`,"ts":1795211093522.75`), func(m *relay.Message) { m.TS = 1795211093522 }},
		{"ts with an exponent", with(`,"ts":1.795211093522e12`), func(m *relay.Message) { m.TS = 1795211093522 }},
		{"ts in seconds", with(`,"ts":1795211093`), func(m *relay.Message) { m.TS = 1795211093000 }},
		{"ts in seconds keeps its fraction", with(`,"ts":1795211093.522`), func(m *relay.Message) { m.TS = 1795211093522 }},
		{"ts in seconds as a string", with(`,"ts":"1795211093.25"`), func(m *relay.Message) { m.TS = 1795211093250 }},
		{"empty ts is unknown", with(`,"ts":""`), nil},
		{"invalid seq becomes 0", with(`,"seq":"first"`), nil},
		{"negative seq becomes 0", with(`,"seq":-4`), nil},
		{"seq as a string", with(`,"seq":"17"`), func(m *relay.Message) { m.Seq = 17 }},
		{"the platform's id replaces a missing one", `{"message_id":"om_1","chat_id":"oc_x","content":"hi","sender_bot_open_id":"ou_a","sender_agent_name":"agent_a","channel":"feishu","metadata":{"chat_type":"group"}}`,
			func(m *relay.Message) { m.RelayMsgID, m.MessageID = "om_1", "om_1" }},
		{"missing channel is the default", `{"relay_msg_id":"r1","chat_id":"oc_x","content":"hi","sender_bot_open_id":"ou_a","sender_agent_name":"agent_a","metadata":{"chat_type":"group"}}`, nil},
		{"an open_id alone names the sender", `{"relay_msg_id":"r1","chat_id":"oc_x","content":"hi","sender_bot_open_id":"ou_a","metadata":{"chat_type":"group"}}`,
			func(m *relay.Message) { m.SenderAgentName = "" }},
		{"a user's message needs no agent", `{"relay_msg_id":"r1","chat_id":"oc_x","content":"hi","role":"user","sender_id":"ou_p"}`,
			func(m *relay.Message) {
				m.SenderBotOpenID, m.SenderAgentName, m.Metadata = "", "", nil
				m.Role, m.SenderID = relay.RoleUser, "ou_p"
			}},
		{"an id of exactly the limit", strings.Replace(with(""), `"r1"`, `"`+strings.Repeat("a", relay.MaxID)+`"`, 1),
			func(m *relay.Message) { m.RelayMsgID = relay.MessageID(strings.Repeat("a", relay.MaxID)) }},
		{"invalid UTF-8 is replaced", strings.Replace(with(""), `"hi"`, "\"h\xffi\"", 1), func(m *relay.Message) { m.Content = "h\uFFFDi" }},
		{"control characters in the text stay", strings.Replace(with(""), `"hi"`, `"a\u0000b\tc"`, 1), func(m *relay.Message) { m.Content = "a\x00b\tc" }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := base()
			if tt.want != nil {
				tt.want(&want)
			}
			got, err := relay.Decode([]byte(tt.line))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(got, want); diff != "" {
				t.Errorf("decoded (-got +want):\n%s", diff)
			}
		})
	}
}

// What is not essential does not cost a good message.
func TestDecodeLeavesOddFieldsOut(t *testing.T) {
	plain, err := relay.Decode([]byte(sevenFields))
	if err != nil {
		t.Fatal(err)
	}
	for _, odd := range []string{`"ts":"SECRET"`, `"ts":1e300`, `"ts":"2026-11-21T01:00:00Z"`, `"ts":{}`, `"mentions":["BotB"]`,
		`"mentions":"BotB"`, `"msg_type":7`, `"thread_id":[]`, `"user_ts":true`, `"sender_name":null`} {
		line := strings.Replace(sevenFields, `"channel"`, odd+`,"channel"`, 1)
		got, err := relay.Decode([]byte(line))
		if err != nil {
			t.Errorf("%s: %v", odd, err)
		}
		if diff := cmp.Diff(got, plain); diff != "" {
			t.Errorf("%s (-got +want):\n%s", odd, diff)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	replace := func(old, new string) string { return strings.Replace(sevenFields, old, new, 1) }
	for name, line := range map[string]string{
		"nothing":                       "",
		"null without the fields":       "null",
		"an array":                      "[]",
		"a torn line":                   sevenFields[:60],
		"two messages":                  sevenFields + sevenFields,
		"no id at all":                  replace(`"relay_msg_id": "r1", `, ""),
		"no chat":                       replace(`"chat_id": "oc_x", `, ""),
		"no sender":                     replace(`"sender_bot_open_id": "ou_a", "sender_agent_name": "agent_a", `, ""),
		"an id with a newline":          replace(`"r1"`, `"r\n1"`),
		"an id with NUL":                replace(`"oc_x"`, `"oc\u0000x"`),
		"an id with DEL":                replace(`"agent_a"`, `"a\u007f"`),
		"an over-long id":               replace(`"r1"`, `"`+strings.Repeat("a", relay.MaxID+1)+`"`),
		"an over-long sender of a user": replace(`"channel"`, `"role":"user","sender_id":"`+strings.Repeat("a", relay.MaxID+1)+`","channel"`),
		"an unknown role":               replace(`"channel"`, `"role":"system","channel"`),
		"an id of another type":         replace(`"oc_x"`, `17`),
		"metadata of another type":      replace(`{"chat_type": "group"}`, `"SECRET"`),
		"a line beyond the limit":       replace("请", strings.Repeat("x", relay.MaxLine)),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := relay.Decode([]byte(line))
			if !errors.Is(err, relay.ErrMalformed) {
				t.Fatalf("got %v, want ErrMalformed", err)
			}
			if strings.Contains(err.Error(), "SECRET") || strings.Contains(err.Error(), "看一下") || len(err.Error()) > 200 {
				t.Errorf("the error quotes the message: %v", err)
			}
		})
	}
}

// A reader that knows seven fields finds these first, relay_msg_id before all,
// with the names and types that it expects.
func TestEncodeMakesSenseToASevenFieldReader(t *testing.T) {
	m := base()
	m.Content = "<at id=ou_b></at> a && b" // is not escaped
	whole := `{"relay_msg_id":"r1","channel":"feishu","chat_id":"oc_x","content":"<at id=ou_b></at> a && b","sender_bot_open_id":"ou_a","sender_agent_name":"agent_a","metadata":{"chat_type":"group"}}`
	if line := mustEncode(t, &m); string(line) != whole {
		t.Errorf("got  %s\nwant %s", line, whole)
	}
	m.Metadata = nil
	m.MessageID, m.TS, m.Seq, m.Mentions = "om_1", 5, 17, []relay.Mention{{AgentName: "b"}}
	line, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	wantStart := `{"relay_msg_id":"r1","channel":"feishu","chat_id":"oc_x","content":"<at id=ou_b></at> a && b","sender_bot_open_id":"ou_a","sender_agent_name":"agent_a","metadata":{},`
	if !strings.HasPrefix(string(line), wantStart) {
		t.Errorf("got  %s\nwant %s…", line, wantStart)
	}
	if m.Metadata != nil {
		t.Error("Encode has changed the message")
	}
}

func TestUnknownMetadataIsCarriedByteExact(t *testing.T) {
	values := map[string]string{
		"number":  `1.10000000000000000001e5`,
		"big":     `12345678901234567890123`,
		"escapes": `"\u003cA\/\u00e9"`,
		"nested":  `{"b":[1,null,{"a":"<x>"}],"a":true}`,
	}
	m := base()
	for k, v := range values {
		m.Metadata[k] = json.RawMessage(v)
	}
	line, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := relay.Decode(line)
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range values {
		if string(got.Metadata[k]) != want {
			t.Errorf("%s: got %s, want %s", k, got.Metadata[k], want)
		}
	}
	if got, want := got.Metadata.Text("chat_type"), "group"; got != want {
		t.Errorf("chat_type: got %q, want %q", got, want)
	}
	if got := got.Metadata.Text("big") + got.Metadata.Text("missing"); got != "" {
		t.Errorf("text of another type: got %q", got)
	}
}

// What a text is made of decides how much longer its JSON is.
var alphabets = map[string]string{
	"plain":         "abcdefg hij",
	"newlines":      "\n",
	"control":       "\x01\x02\x1f",
	"quotes":        `"\`,
	"emoji":         "😀👩‍👩‍👧",
	"chinese":       "请看一下",
	"separators":    "\u2028\u2029",
	"not UTF-8":     "\x80",
	"broken tail":   "a\xf0\x9f\x98",
	"angle":         "<>&",
	"all of it":     "a\x01\"😀请\n\u2028\x80<",
	"one long rune": "𠜎",
}

func TestALongTextIsCutAndSaysSo(t *testing.T) {
	for name, alphabet := range alphabets {
		t.Run(name, func(t *testing.T) {
			sizes := []int{relay.MaxLine}
			if name == "newlines" { // once a text of the API's size, of which nothing was left
				sizes = append(sizes, 4<<20)
			}
			for _, size := range sizes {
				m := base()
				m.Content = strings.Repeat(alphabet, size/len(alphabet)+1)
				line := mustEncode(t, &m)
				got, err := relay.Decode(line)
				if err != nil {
					t.Fatal(err)
				}
				whole := strings.ToValidUTF8(m.Content, "\uFFFD")
				mark := fmt.Sprintf(relay.CutMark, len(m.Content))
				text, wasCut := strings.CutSuffix(got.Content, mark)
				if !wasCut {
					if utf8.ValidString(m.Content) && got.Content != m.Content {
						t.Fatalf("%d bytes: changed without a mark", size)
					}
					continue
				}
				if utf8.ValidString(m.Content) && !strings.HasPrefix(whole, text) {
					t.Errorf("%d bytes: what is left is not the beginning of the text", size)
				}
				if len(line) < relay.MaxLine/2 {
					t.Errorf("%d bytes: cut to a line of %d, of %d that it may have", size, len(line), relay.MaxLine)
				}
			}
		})
	}
}

// mustEncode checks what holds of every encoded message.
func mustEncode(t *testing.T, m *relay.Message) []byte {
	t.Helper()
	line, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	const signature = len(`,"sig":""`) + 64
	if got := len(line) + signature + len("\n"); got > relay.MaxLine {
		t.Fatalf("a line of %d bytes, at most %d", got, relay.MaxLine)
	}
	if !utf8.Valid(line) || bytes.ContainsAny(line, "\r\n") {
		t.Fatal("not one line of UTF-8")
	}
	return line
}

func TestOtherFieldsTooLargeAreAnError(t *testing.T) {
	for _, content := range []string{"", "hi", strings.Repeat("x", relay.MaxLine)} {
		m := base()
		m.Content = content
		m.Metadata["filler"], _ = json.Marshal(strings.Repeat("SECRET", relay.MaxLine/6))
		_, err := m.Encode()
		if err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("content of %d bytes: got %v, want an error without text", len(content), err)
		}
	}
}

func TestSalvage(t *testing.T) {
	nested := strings.Replace(sevenFields, `"group"`, `"group", "about": {"relay_msg_id":"inner"}`, 1)
	quoted := strings.Replace(sevenFields, "请", `{\"relay_msg_id\":\"inner\"}`, 1)
	for _, tt := range []struct{ name, line, want string }{
		{"a fragment and a message", sevenFields[:50] + sevenFields, sevenFields},
		{"a fragment that ends in a start", sevenFields[:50] + `{"relay_msg_id":` + sevenFields, sevenFields},
		{"several fragments", sevenFields[:50] + sevenFields[:70] + sevenFields, sevenFields},
		{"foreign bytes", "\x00\xff garbage" + sevenFields, sevenFields},
		{"a message that holds another", sevenFields[:50] + nested, nested},
		{"a fragment with the start in a string", quoted[:90] + sevenFields, sevenFields},
		{"a message with the start in a string", sevenFields[:50] + quoted, quoted},
		{"nothing", "", ""},
		{"only a fragment", sevenFields[:50], ""},
		{"a whole message is no wreck", sevenFields, ""},
		{"two fragments", sevenFields[:50] + sevenFields[:60], ""},
		{"a torn message behind a fragment", sevenFields[:50] + sevenFields[:len(sevenFields)-1], ""},
		{"no end of starts", strings.Repeat(`{"relay_msg_id":`, 60_000), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, ok := relay.Salvage([]byte(tt.line))
			if string(got) != tt.want || ok != (tt.want != "") {
				t.Errorf("got %q %v, want %q", got, ok, tt.want)
			}
		})
	}
}

func TestNewID(t *testing.T) {
	if got, want := relay.NewID("a", "oc_x", 12, "rnd"), relay.MessageID("a:oc_x:12:rnd"); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, chat := range []string{strings.Repeat("c", relay.MaxID), strings.Repeat("请", 170)} {
		id := string(relay.NewID("agent", relay.ChatID(chat), 12, "rnd"))
		if err := relay.CheckID(id); err != nil || !strings.HasSuffix(id, ":12:rnd") || !utf8.ValidString(id) {
			t.Errorf("id of a long chat: %d bytes, %v", len(id), err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{sevenFields, `{}`, `null`, `{"ts":"1e5","seq":1.5,"metadata":{"a":[]},"mentions":[{}]}`, "{\"chat_id\":\"\xff\"}"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		m, err := relay.Decode(line)
		if err != nil {
			if !errors.Is(err, relay.ErrMalformed) {
				t.Errorf("%v does not wrap ErrMalformed", err)
			}
			return
		}
		again, err := relay.Decode(mustEncode(t, &m))
		if err != nil {
			t.Fatalf("what was decoded and encoded is refused: %v", err)
		}
		if again.ID() != m.ID() || again.ChatID != m.ChatID || again.Content != m.Content {
			t.Errorf("changed on the way: %+v, %+v", m, again)
		}
	})
}

// Unmarshal and the decoder of the standard library agree, on what one reads and on what it refuses.
func FuzzUnmarshal(f *testing.F) {
	type lines struct {
		*relay.Message
		Records []*relay.Message
		Many    map[string]any
		Sum     float64
		Yes     *bool
	}
	for _, seed := range []string{sevenFields, `{}`, `null`, `[]`, ` {"TS": "1e5","Seq":1.5,"metadata":{"a":[ 1 ]},"mentions":[{}]} `,
		`{"content":"\ud800\u0000\/","records":[{"chat_id":"x"},null],"many":{"a":[1,null,"b",{"c":-0.5e3}]},"sum":1e3,"yes":true}`,
		`{"ts":1,"ts":2,"parent_id":[1],"root_id":"r"}`, "{\"chat_id\":\"\xff\"}", `{"content":"a` + "\n" + `"}`, `{"seq":01}`,
		`{"meſſage_id":"m","Key":1}`, `{"meſsage_id":"m"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var want, got lines
		errWant, err := json.Unmarshal(line, &want), relay.Unmarshal(line, &got)
		if fmt.Sprint(err) != fmt.Sprint(errWant) {
			t.Fatalf("%v, want %v", err, errWant)
		}
		if diff := cmp.Diff(want, got); err == nil && diff != "" {
			t.Error(diff)
		}
	})
}

func FuzzSalvage(f *testing.F) {
	f.Add([]byte(sevenFields[:50]), true)
	f.Add([]byte(`{"relay_msg_id":"x","content":"{\"relay_msg_id\":`), true)
	f.Add([]byte(`{"relay_msg_id":{"relay_msg_id":1}}`), false)
	f.Fuzz(func(t *testing.T, fragment []byte, glued bool) {
		line := fragment
		if glued && len(fragment) > 0 {
			line = append(bytes.Clone(fragment), sevenFields...)
		}
		whole, ok := relay.Salvage(line)
		if glued && len(fragment) > 0 && !bytes.HasSuffix(whole, []byte(sevenFields)) {
			t.Errorf("the message behind %q is lost: %q %v", fragment, whole, ok)
		}
		if ok && (!json.Valid(whole) || !bytes.HasSuffix(line, whole)) {
			t.Errorf("salvaged %q", whole)
		}
	})
}

// The strings of a message go into logs, events and caches, also those of a refused one.
func TestDecodeBoundsEveryString(t *testing.T) {
	huge := strings.Repeat("好", 10<<10)
	fields := map[string]any{"relay_msg_id": "r1", "channel": "feishu", "chat_id": "oc_x", "content": "hi",
		"sender_bot_open_id": "ou_a", "sender_agent_name": "agent_a", "metadata": map[string]any{}, "role": "", "message_id": "",
		"sender_app_id": "", "sender_name": "", "mentions": nil, "msg_type": "", "parent_id": "", "root_id": "", "thread_id": "",
		"sender_id": "", "ts": 1, "user_ts": 1, "seq": 1, "sig": ""}
	for name := range fields {
		if name == "content" {
			continue
		}
		for kind, value := range map[string]any{"a text": huge, "a list": []any{huge}, "an object": map[string]any{huge: huge},
			"mentions": []any{map[string]any{"agent_name": huge}, map[string]any{"name": huge}, map[string]any{huge: huge}}} {
			if name == "metadata" && kind == "an object" {
				continue // kept as it came
			}
			line := map[string]any{}
			maps.Copy(line, fields)
			line[name] = value
			data, err := json.Marshal(line)
			if err != nil {
				t.Fatal(err)
			}
			m, err := relay.Decode(data)
			if size := len(fmt.Sprint(m, err)); size > 8<<10 {
				t.Errorf("%s is %s: %d bytes leave the decoder, error %.200v", name, kind, size, err)
			}
			if err != nil && (m.Content != "" || m.RelayMsgID != "r1" && name != "relay_msg_id") {
				t.Errorf("%s is %s: refused with %.200v, got the id %.50s; want only its ids", name, kind, err, m.RelayMsgID)
			}
		}
	}
	many, err := json.Marshal(relay.Message{RelayMsgID: "r1", ChatID: "oc_x", SenderAgentName: "a",
		Mentions: make([]relay.Mention, 5*relay.MaxMentions)})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := relay.Decode(many); err != nil || len(m.Mentions) != relay.MaxMentions {
		t.Errorf("got %d mentions and %v, want the first %d", len(m.Mentions), err, relay.MaxMentions)
	}
}

// Whoever writes a line of odd fields must not make its readers work for each of them.
func TestLinesOfManyOddFieldsCostLittle(t *testing.T) {
	var line strings.Builder
	line.WriteString(`{"ts":"zz"`)
	for i := 0; line.Len() < relay.MaxLine-1000; i++ {
		fmt.Fprintf(&line, `,"%d":1`, i)
	}
	line.WriteString(strings.Replace(sevenFields, "{", ",", 1))
	data := []byte(line.String())
	if m, err := relay.Decode(data); err != nil || m.RelayMsgID != "r1" || m.TS != 0 {
		t.Errorf("got %.200v, %v", m, err)
	}
	if n := testing.AllocsPerRun(1, func() { _, _ = relay.Decode(data) }); n > 10_000 {
		t.Errorf("%.0f allocations", n)
	}
}
