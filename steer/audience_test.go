package steer_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"feishu-relay/relay"
	"feishu-relay/steer"
)

// names is what a line names: bots, "all", or "other" for people and strangers.
func names(who ...string) func() steer.Names {
	var n steer.Names
	for _, w := range who {
		switch w {
		case "all":
			n.All = true
		case "other":
			n.Others = true
		default:
			n.Bots = append(n.Bots, relay.AgentName(w))
		}
	}
	return func() steer.Names { return n }
}

// four are the bots a to d; b is offline, c and d take @all.
func four() []steer.Bot {
	return []steer.Bot{{Agent: "a", Online: true}, {Agent: "b"}, {Agent: "c", Online: true, MentionAll: true},
		{Agent: "d", Online: true, MentionAll: true}}
}

func TestAudienceOf(t *testing.T) {
	t.Parallel()
	type (
		line     = steer.Line
		audience = steer.Audience
	)
	nobody := audience{}
	only := func(agents ...relay.AgentName) audience { return audience{Bots: agents} }
	for name, tt := range map[string]struct {
		mode   steer.Mode
		def    relay.AgentName
		m      line
		before []line // oldest first
		want   audience
	}{
		"all: everybody": {steer.All, "a", line{Person: "p", Named: names("b")}, nil,
			audience{Everybody: true}},
		"no mode: everybody": {"", "a", line{Person: "p"}, nil, audience{Everybody: true}},
		"all: everybody hears bots": {steer.All, "", line{Bot: "a", Named: names("other")}, nil,
			audience{Everybody: true}},
		"1: the bots named, online or not": {steer.Named, "", line{Person: "p", Named: names("b", "a", "b")}, nil,
			only("a", "b")},
		"1: before the bot replied to": {steer.Named, "", line{Person: "p", ParentID: "1", Named: names("b")},
			[]line{{ID: "1", Bot: "a"}}, only("b")},
		"1: before the default bot": {steer.Default, "a", line{Person: "p", Named: names("b", "other")},
			nil, only("b")},
		"1: @all, those that take it": {steer.One, "a", line{Person: "p", Named: names("all")}, nil,
			only("c", "d")},
		"1: @all and one that does not": {steer.Named, "", line{Person: "p", Named: names("all", "a")}, nil,
			only("a", "c", "d")},
		"1: only people: nobody": {steer.One, "a", line{Person: "p", ParentID: "1",
			Named: names("other")}, []line{{ID: "1", Bot: "a"}}, nobody},
		"1: a bot without a sidecar: nobody": {steer.Default, "a", line{Person: "p", Named: names("x")}, nil,
			nobody},
		"1: names that are none": {steer.Default, "a", line{Person: "p", Named: names()}, nil,
			only("a")},
		"1: a bot names a bot":  {steer.Named, "", line{Bot: "a", Named: names("b")}, nil, only("b")},
		"1: a bot names itself": {steer.One, "b", line{Bot: "a", Named: names("a")}, nil, nobody},
		"1: a bot says @all": {steer.Named, "", line{Bot: "c", Named: names("all")}, nil,
			only("d")},
		"2: the bot replied to": {steer.Named, "", line{Person: "p", ParentID: "1"},
			[]line{{ID: "1", Bot: "b"}, {ID: "2", Bot: "a"}}, only("b")},
		"2: a bot replies to a bot": {steer.Named, "", line{Bot: "a", ParentID: "1"},
			[]line{{ID: "1", Bot: "b"}}, only("b")},
		"2: a bot replies to itself": {steer.One, "b", line{Bot: "a", ParentID: "1"},
			[]line{{ID: "1", Bot: "a"}}, nobody},
		"2: a reply to a person goes on": {steer.Default, "c", line{Person: "p", ParentID: "1"},
			[]line{{ID: "1", Person: "q", Named: names("b")}}, only("c")},
		"2: a reply to what is not known": {steer.Default, "c", line{Person: "p", ParentID: "9"},
			[]line{{ID: "1", Bot: "b"}}, only("c")},
		"2: a bot that left: nobody": {steer.Default, "c", line{Person: "p", ParentID: "1"},
			[]line{{ID: "1", Bot: "x"}}, nobody},
		"2: before the topic": {steer.Named, "", line{Person: "p", ThreadID: "t", ParentID: "1"},
			[]line{{ID: "1", Bot: "b", ThreadID: "t"}, {ID: "2", Bot: "a", ThreadID: "t"}}, only("b")},
		"3: the newest bot of the topic": {steer.Named, "", line{Person: "p", ThreadID: "t"},
			[]line{{Bot: "b", ThreadID: "t"}, {Bot: "a", ThreadID: "t"}, {Person: "p", ThreadID: "t"},
				{Bot: "c", ThreadID: "u"}, {Bot: "d"}}, only("a")},
		"3: whom a person named there": {steer.Default, "c", line{Person: "p", ThreadID: "t"},
			[]line{{Bot: "a", ThreadID: "t"}, {Person: "q", ThreadID: "t", Named: names("b")},
				{Person: "q", ThreadID: "t", Named: names("other")}}, only("b")},
		"3: whom a bot named there": {steer.Named, "", line{Person: "p", ThreadID: "t"},
			[]line{{Bot: "a", ThreadID: "t", Named: names("b", "other")}}, only("b")},
		"3: a bot that named a person": {steer.Named, "", line{Person: "p", ThreadID: "t"},
			[]line{{Bot: "a", ThreadID: "t", Named: names("other")}}, only("a")},
		"3: @all there": {steer.Named, "", line{Person: "p", ThreadID: "t"},
			[]line{{Bot: "a", ThreadID: "t"}, {Person: "q", ThreadID: "t", Named: names("all")}}, only("c", "d")},
		"3: a bot without a sidecar named there": {steer.Default, "c", line{Person: "p", ThreadID: "t"},
			[]line{{Bot: "a", ThreadID: "t"}, {Person: "q", ThreadID: "t", Named: names("x")}}, nobody},
		"3: a bot's message in a topic": {steer.Named, "", line{Bot: "a", ThreadID: "t"},
			[]line{{Bot: "b", ThreadID: "t"}}, only("b")},
		"3: the message that the topic is about": {steer.Default, "c", line{Person: "p", ThreadID: "t", RootID: "1",
			ParentID: "1"}, []line{{ID: "1", Person: "p", Named: names("b")}, {Bot: "a"}}, only("b")},
		"3: that one as another line names it": {steer.Named, "", line{Person: "p", ThreadID: "t"},
			[]line{{ID: "1", Bot: "a"}, {Bot: "b"}, {Person: "q", ThreadID: "t", RootID: "1"}}, only("a")},
		"3: an empty topic goes on": {steer.Default, "c", line{Person: "p", ThreadID: "t"},
			[]line{{Bot: "a"}, {Person: "q", ThreadID: "t"}}, only("c")},
		"4: the default bot": {steer.Default, "b", line{Person: "p"}, []line{{Bot: "a"}},
			only("b")},
		"4: also in mode one":       {steer.One, "b", line{Person: "p"}, nil, only("b")},
		"4: not in mode named":      {steer.Named, "b", line{Person: "p"}, nil, nobody},
		"4: one that is not there":  {steer.Default, "x", line{Person: "p"}, nil, nobody},
		"4: none":                   {steer.Default, "", line{Person: "p"}, nil, nobody},
		"4: not for bots' messages": {steer.Default, "b", line{Bot: "a"}, nil, nobody},
		"5: not for bots' messages": {steer.One, "", line{Bot: "a", Person: "p"}, nil, nobody},
		"5: the first": {steer.One, "x", line{Person: "p"}, nil, audience{OneOf: bots("a",
			"b", "c", "d")}},
		"5: who replied to them": {steer.One, "", line{Person: "p"},
			[]line{{ID: "1", Person: "p"}, {ID: "2", Person: "q"}, {Bot: "c", ParentID: "1"},
				{Bot: "b", ParentID: "2"}},
			audience{OneOf: bots("c", "a", "b", "d")}},
		"5: who spoke first after them": {steer.One, "", line{Person: "p"}, []line{{ID: "1", Person: "p"}, {Bot: "b"},
			{Bot: "c"}, {ID: "2", Person: "q"}, {Bot: "d"}},
			audience{OneOf: bots("b", "a", "c", "d")}},
		"5: a late reply is later": {steer.One, "", line{Person: "p"},
			[]line{{ID: "1", Person: "p"}, {ID: "2", Person: "p"}, {Bot: "b"}, {Bot: "d", ParentID: "1"}},
			audience{OneOf: bots("d", "a", "b", "c")}},
		"5: who replied to another did not speak to them": {steer.One, "", line{Person: "p"},
			[]line{{ID: "1", Person: "q"}, {ID: "2", Person: "p"}, {Bot: "b", ParentID: "1"}, {Bot: "c"}},
			audience{OneOf: bots("c", "a", "b", "d")}},
		"5: first is where it was said": {steer.One, "", line{Person: "p", ThreadID: "u"},
			[]line{{ID: "1", Person: "p", ThreadID: "t"}, {Bot: "b"}, {Bot: "d", ThreadID: "t"}},
			audience{OneOf: bots("d", "a", "b", "c")}},
		"5: a bot that left": {steer.One, "", line{Person: "p"},
			[]line{{ID: "1", Person: "p"}, {Bot: "x", ParentID: "1"}},
			audience{OneOf: bots("a", "b", "c", "d")}},
		"5: a person who is not known": {steer.One, "", line{}, []line{{ID: "1"}, {Bot: "d", ParentID: "1"}},
			audience{OneOf: bots("a", "b", "c", "d")}},
	} {
		got := steer.AudienceOf(tt.m, steer.Settings{Answer: tt.mode, DefaultBot: tt.def}, four(),
			newestFirst(tt.before))
		if fmt.Sprint(got) != fmt.Sprint(tt.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, tt.want)
		}
	}
}

// A line that addresses everybody names no bot where none takes that.
func TestEverybodyInATopicWhereNoBotTakesThat(t *testing.T) {
	t.Parallel()
	before := []steer.Line{{Bot: "a", ThreadID: "t"}, {Person: "q", ThreadID: "t", Named: names("all")}}
	got := steer.AudienceOf(steer.Line{Person: "p", ThreadID: "t"}, steer.Settings{Answer: steer.Named},
		[]steer.Bot{{Agent: "a"}, {Agent: "b"}}, newestFirst(before))
	if fmt.Sprint(got.Bots) != "[a]" {
		t.Errorf("got %+v", got)
	}
}

func newestFirst(lines []steer.Line) func(func(steer.Line) bool) {
	return func(yield func(steer.Line) bool) {
		for _, l := range slices.Backward(lines) {
			if !yield(l) {
				return
			}
		}
	}
}

// talk is a random group: its bots, its lines and a message behind them.
type talk struct {
	bots     []steer.Bot
	before   []steer.Line
	m        steer.Line
	settings steer.Settings
}

func randomLine(r *rand.Rand, id int) steer.Line {
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	l := steer.Line{ID: fmt.Sprint(id), ThreadID: pick("", "", "t", "u"), Person: pick("p", "q", "")}
	if r.IntN(2) == 0 {
		l.Bot, l.Person = relay.AgentName(pick("a", "b", "c", "d", "x")), ""
	}
	if r.IntN(3) == 0 {
		l.ParentID = fmt.Sprint(r.IntN(id + 2))
	}
	if l.ThreadID != "" && r.IntN(2) == 0 {
		l.RootID = fmt.Sprint(r.IntN(id + 2))
	}
	if r.IntN(3) == 0 {
		var who []string
		for range r.IntN(3) {
			who = append(who, pick("a", "b", "c", "d", "x", "all", "other"))
		}
		l.Named = names(who...)
	}
	return l
}

func randomTalk(r *rand.Rand) talk {
	var out talk
	for i := range r.IntN(12) {
		out.before = append(out.before, randomLine(r, i))
	}
	out.m = randomLine(r, len(out.before))
	for _, agent := range []relay.AgentName{"a", "b", "c", "d"} {
		if r.IntN(5) > 0 {
			out.bots = append(out.bots, steer.Bot{Agent: agent, Online: r.IntN(2) == 0, MentionAll: r.IntN(3) == 0})
		}
	}
	modes := append(slices.Clone(steer.Modes), "")
	out.settings = steer.Settings{Answer: modes[r.IntN(len(modes))], DefaultBot: relay.AgentName([]string{"", "a", "d",
		"x"}[r.IntN(4)])}
	return out
}

func eachTalk(t *testing.T, f func(t *testing.T, r *rand.Rand, in talk, a steer.Audience)) {
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 7))
		in := randomTalk(r)
		f(t, r, in, steer.AudienceOf(in.m, in.settings, in.bots, newestFirst(in.before)))
		if t.Failed() {
			t.Fatalf("seed %d: %+v", seed, in)
		}
	}
}

func TestAudienceIsInTheGroupEachOnceAndNeverTheSender(t *testing.T) {
	t.Parallel()
	eachTalk(t, func(t *testing.T, _ *rand.Rand, in talk, a steer.Audience) {
		if all := in.settings.Answer == steer.All || in.settings.Answer == ""; all != a.Everybody {
			t.Errorf("everybody: %t", a.Everybody)
		}
		for _, some := range [][]relay.AgentName{a.Bots, a.OneOf} {
			for i, agent := range some {
				known := slices.ContainsFunc(in.bots, func(b steer.Bot) bool { return b.Agent == agent })
				if !known || agent == in.m.Bot || slices.Contains(some[:i], agent) {
					t.Errorf("got %+v", a)
				}
			}
		}
		if len(a.Bots) > 0 && len(a.OneOf) > 0 || a.Everybody && len(a.Bots)+len(a.OneOf) > 0 {
			t.Errorf("more than one answer: %+v", a)
		}
	})
}

// Whoever merged what in whichever order has the same settings and the same bots, and so
// the same audience, however they list the bots.
func TestSidecarsAgreeOnAudiences(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 7))
		changes := randomRecords(r)
		in := randomTalk(r)
		var want steer.Audience
		for i := range 4 {
			record := steer.Record{}
			for _, c := range r.Perm(len(changes)) {
				record.Merge(changes[c])
			}
			var in2 []steer.Bot
			for _, m := range record.Members() {
				in2 = append(in2, steer.Bot{Agent: m.Agent, MentionAll: m.MentionAll})
			}
			r.Shuffle(len(in2), func(i, j int) { in2[i], in2[j] = in2[j], in2[i] })
			s := record.Over(steer.Settings{Answer: steer.One}, map[string]string{}, now)
			got := steer.AudienceOf(in.m, s, in2, newestFirst(in.before))
			if i == 0 {
				want = got
			} else if !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: %+v, then %+v", seed, want, got)
			}
		}
	}
}

// A person's @all that no bot takes goes by the mode.
func TestAPersonsAllGoesByTheMode(t *testing.T) {
	t.Parallel()
	two := []steer.Bot{{Agent: "a", Online: true}, {Agent: "b", Online: true}}
	for mode, want := range map[steer.Mode]string{steer.One: "[] [a b]", steer.Default: "[b] []", steer.Named: "[] []"} {
		set := steer.Settings{Answer: mode}
		if mode == steer.Default {
			set.DefaultBot = "b"
		}
		got := steer.AudienceOf(steer.Line{Person: "p", Named: names("all")}, set, two, newestFirst(nil))
		if fmt.Sprint(got.Bots, got.OneOf) != want {
			t.Errorf("%s: got %v %v, want %s", mode, got.Bots, got.OneOf, want)
		}
		bot := steer.AudienceOf(steer.Line{Bot: "a", Named: names("all")}, set, two, newestFirst(nil))
		if len(bot.Bots)+len(bot.OneOf) > 0 {
			t.Errorf("%s: a bot's @all: got %+v", mode, bot)
		}
	}
}
