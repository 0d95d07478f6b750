package feishu_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/feishu"
	"feishu-relay/relay"
)

// openDirectory returns the directory that is kept in a folder; "": in memory only.
func openDirectory(t testing.TB, dir string) (*feishu.Directory, *feishu.Store) {
	t.Helper()
	var store *feishu.Store
	if dir != "" {
		var err error
		if store, err = feishu.OpenStore(dir, nil); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
	}
	d := feishu.NewDirectory(store, feishu.NewAPI("http://127.0.0.1:1", "cli_self", ""), nil)
	t.Cleanup(func() { d.Close() })
	return d, store
}

// reopened is the directory that a store has after a restart.
func reopened(t testing.TB, dir string, d *feishu.Directory, store *feishu.Store) *feishu.Directory {
	t.Helper()
	if err := errors.Join(d.Close(), store.Close()); err != nil {
		t.Fatal(err)
	}
	again, _ := openDirectory(t, dir)
	return again
}

func TestDirectoryIsRemembered(t *testing.T) {
	dir := t.TempDir()
	b, store := openDirectory(t, dir)
	b.LearnSelf(feishu.Self{AppID: "cli_self", Name: "BotB", OpenID: "ou_self"})
	b.LearnBot(feishu.Bot{OpenID: "ou_a", Name: "BotA", Agent: "agent_a"})
	b.LearnBot(feishu.Bot{OpenID: "ou_c"})
	b.SetChat(feishu.Chat{ID: "oc_1", Kind: "group", Topic: true, Name: "群"})
	b.SawChat("oc_1", "")
	b.LeftChat("oc_2")
	again := reopened(t, dir, b, store)
	if diff := cmp.Diff(again.Self(), b.Self()); diff != "" {
		t.Errorf("self (-got +want):\n%s", diff)
	}
	if diff := cmp.Diff(again.Bots(), []feishu.Bot{{OpenID: "ou_a", Name: "BotA", Agent: "agent_a"}, {OpenID: "ou_c"}}); diff != "" {
		t.Errorf("bots (-got +want):\n%s", diff)
	}
	want := feishu.Chat{ID: "oc_1", Kind: "group", Topic: true, Name: "群", In: feishu.Yes}
	if diff := cmp.Diff(again.Chat("oc_1"), want); diff != "" {
		t.Errorf("chat (-got +want):\n%s", diff)
	}
	if got := again.Chat("oc_2").In; got != feishu.No {
		t.Errorf("left chat: %v", got)
	}
	if diff := cmp.Diff(again.Chat("oc_new"), feishu.Chat{ID: "oc_new"}); diff != "" {
		t.Errorf("unknown chat (-got +want):\n%s", diff)
	}
}

func TestDirectorySelf(t *testing.T) {
	b, _ := openDirectory(t, "")
	known := feishu.Self{AppID: "cli_1", Name: "B", OpenID: "ou_1"}
	long := feishu.Self{AppID: "cli_1", Name: "B 2 " + strings.Repeat("长", (relay.MaxID-4)/3), OpenID: "ou_1"}
	for _, step := range []struct{ learn, want feishu.Self }{
		{feishu.Self{Name: "B"}, feishu.Self{Name: "B"}},
		{feishu.Self{AppID: "cli_1"}, feishu.Self{AppID: "cli_1", Name: "B"}},
		{feishu.Self{AppID: "cli_1", OpenID: "ou_1"}, known},
		{feishu.Self{AppID: "cli_2", Name: "other"}, known},
		{feishu.Self{OpenID: "ou\n"}, known},
		{feishu.Self{}, known},
		{feishu.Self{Name: "B\n2 " + strings.Repeat("长", relay.MaxID)}, long},
	} {
		if b.LearnSelf(step.learn); b.Self() != step.want {
			t.Errorf("after %+v: %+v", step.learn, b.Self())
		}
	}
	if b.LearnMentions([]feishu.Mention{{OpenID: "ou_1", Name: "new"}}); b.Self().Name != "new" {
		t.Errorf("a mention has its new name: %+v", b.Self())
	}
}

func TestDirectoryBots(t *testing.T) {
	for _, tt := range []struct {
		name  string
		learn []feishu.Bot
		want  []feishu.Bot
	}{
		{"merged by open_id", []feishu.Bot{{OpenID: "ou_1", Name: "A"}, {OpenID: "ou_1", AppID: "cli_1"}}, []feishu.Bot{{OpenID: "ou_1", Name: "A", AppID: "cli_1"}}},
		{"merged by app id", []feishu.Bot{{AppID: "cli_1", Agent: "a"}, {AppID: "cli_1", OpenID: "ou_1", Name: "A"}}, []feishu.Bot{{OpenID: "ou_1", Name: "A", AppID: "cli_1", Agent: "a"}}},
		{"merged by agent", []feishu.Bot{{Agent: "a", Name: "A"}, {Agent: "a", AppID: "cli_1"}}, []feishu.Bot{{Name: "A", AppID: "cli_1", Agent: "a"}}},
		{"two become one", []feishu.Bot{{OpenID: "ou_1", Name: "A"}, {Agent: "a", AppID: "cli_1"}, {OpenID: "ou_1", AppID: "cli_1"}}, []feishu.Bot{{OpenID: "ou_1", Name: "A", AppID: "cli_1", Agent: "a"}}},
		{"a new name", []feishu.Bot{{OpenID: "ou_1", Name: "A"}, {OpenID: "ou_1", Name: "B"}, {OpenID: "ou_1"}}, []feishu.Bot{{OpenID: "ou_1", Name: "B"}}},
		{"a name is no identity", []feishu.Bot{{OpenID: "ou_1", Name: "A"}, {OpenID: "ou_2", Name: "A"}, {Name: "A"}}, []feishu.Bot{{OpenID: "ou_1", Name: "A"}, {OpenID: "ou_2", Name: "A"}}},
		{"an agent that moved to another app", []feishu.Bot{{OpenID: "ou_1", AppID: "cli_1", Agent: "a"}, {AppID: "cli_2", Agent: "a"}}, []feishu.Bot{{OpenID: "ou_1", AppID: "cli_1"}, {AppID: "cli_2", Agent: "a"}}},
		{"an app under another open_id", []feishu.Bot{{OpenID: "ou_1", AppID: "cli_1"}, {OpenID: "ou_2", AppID: "cli_1"}}, []feishu.Bot{{OpenID: "ou_2", AppID: "cli_1"}}},
		{"nothing to know it by is left", []feishu.Bot{{Agent: "a", Name: "A", AppID: "cli_1"}, {OpenID: "ou_2", AppID: "cli_2"}, {OpenID: "ou_2", AppID: "cli_1", Agent: "a"}}, []feishu.Bot{{OpenID: "ou_2", AppID: "cli_1", Agent: "a", Name: "A"}}},
		{"not the own one", []feishu.Bot{{OpenID: "ou_self", Name: "me"}, {AppID: "cli_self"}}, nil},
		{"not with odd ids", []feishu.Bot{{OpenID: "ou\n"}, {AppID: strings.Repeat("x", relay.MaxID+1)}, {}}, nil},
		{"seen again goes to the end", []feishu.Bot{{OpenID: "ou_1"}, {OpenID: "ou_2"}, {OpenID: "ou_1"}}, []feishu.Bot{{OpenID: "ou_2"}, {OpenID: "ou_1"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, _ := openDirectory(t, "")
			b.LearnSelf(feishu.Self{AppID: "cli_self", OpenID: "ou_self"})
			for _, bot := range tt.learn {
				b.LearnBot(bot)
			}
			if diff := cmp.Diff(b.Bots(), tt.want); diff != "" {
				t.Errorf("bots (-got +want):\n%s", diff)
			}
		})
	}
}

func TestDirectoryAgent(t *testing.T) {
	for _, tt := range []struct {
		name                 string
		bots                 []feishu.Bot
		agent, appID, called string
		want                 relay.OpenID
	}{
		{"by agent", []feishu.Bot{{OpenID: "ou_1", Agent: "a"}, {OpenID: "ou_2", AppID: "cli_a", Name: "A"}}, "a", "cli_a", "A", "ou_1"},
		{"by app", []feishu.Bot{{OpenID: "ou_1", Name: "A"}, {OpenID: "ou_2", AppID: "cli_a"}}, "a", "cli_a", "A", "ou_2"},
		{"by name", []feishu.Bot{{OpenID: "ou_1", Name: "A"}, {OpenID: "ou_2", Name: "B"}}, "a", "cli_a", " A ", "ou_1"},
		{"by name, known from the relay too", []feishu.Bot{{Agent: "a", AppID: "cli_a", Name: "A"}, {OpenID: "ou_1", Name: "A"}}, "a", "cli_a", "A", "ou_1"},
		{"two have the name", []feishu.Bot{{OpenID: "ou_1", Name: "A"}, {OpenID: "ou_2", Name: "A"}}, "a", "cli_a", "A", ""},
		{"another agent has the name too", []feishu.Bot{{OpenID: "ou_1", Name: "A"}, {Agent: "b", Name: "A"}}, "a", "cli_a", "A", ""},
		{"it is another agent's", []feishu.Bot{{OpenID: "ou_1", Name: "A", Agent: "b"}}, "a", "cli_a", "A", ""},
		{"it is another app's", []feishu.Bot{{OpenID: "ou_1", Name: "A", AppID: "cli_b"}}, "a", "cli_a", "A", ""},
		{"no name", []feishu.Bot{{OpenID: "ou_1"}}, "a", "", "", ""},
		{"never seen at Feishu", []feishu.Bot{{Agent: "a", AppID: "cli_a", Name: "A"}}, "a", "cli_a", "A", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, _ := openDirectory(t, "")
			for _, bot := range tt.bots {
				b.LearnBot(bot)
			}
			bot, ok := b.Agent(relay.AgentName(tt.agent), tt.appID, tt.called)
			if bot.OpenID != tt.want || ok != (tt.want != "") {
				t.Errorf("got %+v, %v", bot, ok)
			}
		})
	}
	b, _ := openDirectory(t, "")
	b.LearnChatBots([]feishu.Bot{{OpenID: "ou_old", Name: "A"}})
	b.LearnChatBots([]feishu.Bot{{OpenID: "ou_new", Name: "A"}, {OpenID: "ou_b", Name: "B"}})
	if bot, _ := b.Agent("a", "cli_a", "A"); bot.OpenID != "ou_new" {
		t.Errorf("the bots of a chat have the newest ids, got %+v", bot)
	}
}

func TestDirectoryChats(t *testing.T) {
	b, _ := openDirectory(t, "")
	chat := func(want feishu.Chat) {
		t.Helper()
		want.ID = "oc_1"
		if diff := cmp.Diff(b.Chat("oc_1"), want); diff != "" {
			t.Errorf("chat (-got +want):\n%s", diff)
		}
	}
	b.SawChat("oc_1", "")
	chat(feishu.Chat{In: feishu.Yes})
	b.SawChat("oc_1", "group")
	chat(feishu.Chat{In: feishu.Yes, Kind: "group"})
	b.SawChat("oc_1", "")
	b.SawChat("oc_1", "topic_group")
	chat(feishu.Chat{In: feishu.Yes, Kind: "group"})
	b.SetChat(feishu.Chat{ID: "oc_1", Kind: "group", Topic: true, Name: "n"})
	b.SetChat(feishu.Chat{ID: "oc_1", In: feishu.No})
	chat(feishu.Chat{In: feishu.No, Kind: "group", Topic: true, Name: "n"})
	b.SawChat("oc_1", "group")
	chat(feishu.Chat{In: feishu.Yes, Kind: "group", Topic: true, Name: "n"})
	b.LeftChat("oc_1")
	chat(feishu.Chat{In: feishu.No, Kind: "group", Topic: true, Name: "n"})
	before := b.Version()
	b.SawChat("", "group")
	b.SawChat("oc\n", "group")
	b.LeftChat("oc_1")
	if b.Version() != before {
		t.Error("nothing new is a change")
	}
}

func TestDirectoryForgetsTheOldest(t *testing.T) {
	dir := t.TempDir()
	b, store := openDirectory(t, dir)
	for i := range 1_001 {
		b.LearnBot(feishu.Bot{OpenID: relay.OpenID(fmt.Sprint("ou_", i))})
		if i == 500 {
			b.LearnBot(feishu.Bot{OpenID: "ou_0"}) // seen again
		}
	}
	for i := range 10_001 {
		b.SawChat(relay.ChatID(fmt.Sprint("oc_", i)), "group")
		if i == 5000 {
			b.SawChat("oc_0", "")
		}
	}
	check := func(b *feishu.Directory) {
		t.Helper()
		_, first := b.Bot("ou_0")
		_, second := b.Bot("ou_1")
		if !first || second || len(b.Bots()) != 1_000 {
			t.Errorf("%d bots, first %v, second %v", len(b.Bots()), first, second)
		}
		if b.Chat("oc_0").In != feishu.Yes || b.Chat("oc_1").In != feishu.Unknown || b.Chat("oc_10000").In != feishu.Yes {
			t.Error("not the chat seen longest ago was forgotten")
		}
	}
	check(b)
	check(reopened(t, dir, b, store))
}
