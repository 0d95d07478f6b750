package mention_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/mention"
)

// pieces is what random texts are put together from.
var pieces = []string{
	"@Ann", "@Anna", "@BotB", "@小B", "@小明", "@小明明", "@Code Bot", "@gpt-4.1", "@Twin", "@all", "@Zoe", "＠Ann", "@",
	" ", "\n", "\n\n", "，", "请看", "hi", ". ", "-", "_", "`", "``", "```", "> ", "\n> ", "\n```\n", "~~~", "<at id=ou_b></at>",
	`<at user_id="ou_x">Ann</at>`, "<at", "<", "@_user_1", "@_user_12", "joe@mail.example", "https://example.com/", "(", ")", "\xf0",
}

func randomText(r *rand.Rand) string {
	var b strings.Builder
	for range r.IntN(12) {
		b.WriteString(pieces[r.IntN(len(pieces))])
	}
	return b.String()
}

// each calls f for many random texts and says on failure how to repeat it.
func each(t *testing.T, f func(t *testing.T, r *rand.Rand)) {
	t.Helper()
	for seed := range uint64(3000) {
		f(t, rand.New(rand.NewPCG(seed, 1)))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func TestCodeAndQuotesNeverAddAnAgent(t *testing.T) {
	d := team()
	hidings := []string{"\n\n```\n%s\n```\n", "\n\n~~~\n%s\n~~~\n", "\n\n````\n%s\n````\n", "\n\n`````` %s ``````\n\n", "\n\n> %s\n\n"}
	each(t, func(t *testing.T, r *rand.Rand) {
		text := randomText(r)
		inside := strings.ReplaceAll(randomText(r), "\n", " ")
		hiding := hidings[r.IntN(len(hidings))]
		if s := text + inside; strings.Contains(s, "~~~") || strings.Contains(s, "`") {
			hiding = hidings[4] // s opens or closes code itself
		}
		with := text + fmt.Sprintf(hiding, inside+"@Ann @BotB @小明")
		before, after := d.Find(mention.Text{Content: text}), d.Find(mention.Text{Content: with})
		if diff := cmp.Diff(before, after); diff != "" {
			t.Errorf("%q adds an agent (-without +with):\n%s", with, diff)
		}
	})
}

func TestALetterBehindALatinNameRemovesIt(t *testing.T) {
	d := team()
	for _, name := range []string{"Ann", "Anna", "BotB", "小B", "Code Bot", "gpt-4.1", "Ann Lee", "agent_b"} {
		for c := 'a'; c <= 'z'; c++ {
			for _, before := range []string{"", "请", "hi "} {
				text := before + "@" + name + string(c)
				if name == "Ann" && c == 'a' {
					continue // Anna
				}
				want := ""
				if name == "Ann Lee" {
					want = "ann" // the shorter name still ends well
				}
				if got := flat(d.Find(mention.Text{Content: text + " x"})); got != want {
					t.Errorf("Find(%q) = %q, want %q", text, got, want)
				}
			}
		}
	}
}

func TestOrderIsThatOfFirstAppearance(t *testing.T) {
	d := team()
	forms := map[string][]string{
		"ann":     {"@Ann", "<at id=ou_ann></at>", "@_user_1"},
		"anna":    {"@Anna", "@Ann Lee"},
		"agent_b": {"@BotB", "@小B", "@agent_b", `<at user_id="ou_x">BotB</at>`},
		"ming":    {"@小明", "<at id=ou_ming></at>"},
	}
	refs := []mention.Ref{{Key: "@_user_1", OpenID: "ou_ann"}}
	each(t, func(t *testing.T, r *rand.Rand) {
		var want []string
		var b strings.Builder
		for range r.IntN(8) {
			agent := []string{"ann", "anna", "agent_b", "ming"}[r.IntN(4)]
			b.WriteString(forms[agent][r.IntN(len(forms[agent]))] + "，")
			if !slices.Contains(want, agent) {
				want = append(want, agent)
			}
		}
		if !strings.Contains(b.String(), "@_user_1") && !slices.Contains(want, "ann") {
			want = append(want, "ann") // the record counts also where the text does not show it
		}
		got := d.Find(mention.Text{Content: b.String(), Refs: refs}).Agents
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", b.String(), diff)
		}
	})
}

func FuzzFind(f *testing.F) {
	for _, p := range pieces {
		f.Add(p, "", "")
	}
	f.Add(`{"text":"@_user_1 hi"}`, "text", "@_user_1")
	f.Add(`{"zh_cn":{"title":"@Ann","content":[[{"tag":"at","user_id":"@_user_1"}]]}}`, "post", "@_user_1")
	f.Add(`{"user_dsl":"{\"body\":{\"elements\":[{\"tag\":\"markdown\",\"content\":\"<at ids=a,ou_b></at>\"}]}}"}`, "interactive", "")
	f.Add("> `` ~~~\n```\n@Ann <at user_id='ou_b' mention_key=@_user_1>x</at> a@b.cc http://x/(@Ann)", "", "all")
	d := team()
	known := []string{"ann", "anna", "agent_b", "coder", "ming", "mingming", "gpt-4.1", "twin_1", "twin_2"}
	f.Fuzz(func(t *testing.T, content, msgType, ref string) {
		text := mention.Text{Content: content, MsgType: msgType, Refs: []mention.Ref{
			{Key: "@_user_1", Name: ref}, {Key: ref, OpenID: "ou_b"}, {AgentName: ref},
		}}
		found := d.Find(text)
		for i, agent := range found.Agents {
			if !slices.Contains(known, agent) || slices.Contains(found.Agents[:i], agent) {
				t.Errorf("found %q in %q", found.Agents, content)
			}
		}
		text.Refs = d.Resolve(text)
		if diff := cmp.Diff(found, d.Find(text)); diff != "" {
			t.Errorf("the receiver finds others (-sender +receiver):\n%s", diff)
		}
	})
}
