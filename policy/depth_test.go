package policy_test

import (
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"feishu-relay/policy"
)

// say reads a history in short: one message a word list, separated by "|", as
//
//	A@3 id=a1 p=u1 t=T r=a0 u=2 role=user
//
// for sender A at second 3, answering u1 in topic T with root a0, having known a
// user message of second 2. Senders that begin with u are people. The id is the
// lower-case sender and second ("a3") unless given; "id=-" means no id.
func say(t testing.TB, text string) []policy.Entry {
	t.Helper()
	var out []policy.Entry
	for part := range strings.SplitSeq(text, "|") {
		words := strings.Fields(part)
		if len(words) == 0 {
			continue
		}
		sender, at, _ := strings.Cut(words[0], "@")
		e := policy.Entry{Role: policy.RoleAssistant, Sender: sender, TS: seconds(t, at),
			MessageID: strings.ToLower(sender) + at}
		if strings.HasPrefix(sender, "u") {
			e.Role = policy.RoleUser
		}
		for _, w := range words[1:] {
			key, value, _ := strings.Cut(w, "=")
			switch key {
			case "id":
				e.MessageID = strings.TrimPrefix(value, "-")
			case "p":
				e.ParentID = value
			case "recalled":
				e.Recalled = true
			case "final":
				e.FinalTS = seconds(t, value)
			case "part":
				e.PartOf = value
			case "t":
				e.ThreadID = value
			case "r":
				e.RootID = value
			case "u":
				e.UserTS = seconds(t, value)
			case "role":
				e.Role = value
			case "from":
				e.Sender = strings.TrimPrefix(value, "-")
			default:
				t.Fatalf("unknown field %q", key)
			}
		}
		out = append(out, e)
	}
	return out
}

func seconds(t testing.TB, s string) int64 {
	t.Helper()
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return int64(f * 1000)
}

// TestDepth asks for the last message of each history, unless of names another.
func TestDepth(t *testing.T) {
	turns := policy.Count{Turns: true}
	idle := policy.Count{IdleReset: time.Minute}
	for _, tt := range []struct {
		name  string
		say   string
		of    string
		count policy.Count
		want  int
	}{
		// A row of bots.
		{name: "a lone message counts itself", say: "A@1", want: 1},
		{name: "the first answer to a person is 1", say: "u@1|A@2", want: 1},
		{name: "the second bot is 2", say: "u@1|A@2|B@3", want: 2},
		{name: "user A B A is 3 when B hears it", say: "u@1|A@2|B@3|A@4", want: 3},
		{name: "when A hears B it is 2", say: "u@1|A@2|B@3|A@4", of: "b3", want: 2},
		{name: "what comes after the message is not counted", say: "u@1|A@2|B@3|A@4|B@5", of: "a2", want: 1},
		{name: "a person resets", say: "u@1|A@2|B@3|u@4|A@5", want: 1},
		{name: "only the last person's message resets", say: "u@1|A@2|u@3|A@4|B@5", want: 2},
		{name: "a person after the message does not reset it", say: "A@1|B@2|u@3", of: "b2", want: 2},
		{name: "without any person all count", say: "A@1|B@2|C@3|D@4", want: 4},
		{name: "one bot's messages count one by one", say: "u@1|A@2|A@3|A@4", want: 3},
		{name: "a person's message has depth 0", say: "A@1|B@2|u@3", want: 0},
		{name: "an empty role is a bot's", say: "u@1|A@2 role=|B@3", want: 2},
		{name: "an entry of another role neither counts nor resets", say: "u@1|A@2|S@3 role=system|B@4", want: 2},
		{name: "the message itself counts with any role", say: "u@1|A@2|B@3 role=tool", want: 2},
		{name: "two people in a row", say: "A@1|u@2|u2@3|B@4", want: 1},

		// Answers that are written anew, and pieces.
		{name: "what was recalled does not count", say: "u@1 id=q|A@2 p=q recalled=|A@40 p=q", want: 1},
		{name: "nor between other bots", say: "u@1|A@2|B@3 recalled=|C@4", want: 2},
		{name: "a piece follows the last write", say: "u@1|B@2|A@3 p=x final=60|A@65 p=x", want: 2},
		{name: "a piece that is late", say: "u@1|B@2|A@3 p=x final=60|A@75 p=x", want: 3},

		// Order.
		{name: "entries are ordered by ts", say: "A@5|u@1|B@3|C@6", want: 3},
		{name: "a late person's entry with an early ts resets where it was said", say: "A@2|B@4|u@3", of: "b4", want: 1},
		{name: "equal ts keep the given order", say: "u@1|A@1|B@1", want: 2},
		{name: "equal ts, person last, message before it", say: "A@1|B@1|u@1", of: "b1", want: 2},
		{name: "equal ts, person between", say: "A@1|u@1|B@1", want: 1},
		{name: "a message without ts is the newest", say: "u@1|A@2|B@3|C@0", want: 3},
		{name: "an entry without ts is the oldest", say: "A@0|u@1|B@2", want: 1},

		// Repeats.
		{name: "one answer recorded by three bots is one", say: "u@1|A@2 id=a|A@2 id=a|A@2 id=a|B@3", want: 2},
		{name: "repeats of the message itself", say: "u@1|A@2 id=a|A@2 id=a|A@2 id=a", want: 1},
		{name: "a repeat with another ts is no second message", say: "u@1|A@2 id=a|A@4 id=a|B@5", want: 2},
		{name: "the first of repeats counts", say: "A@2 id=a|u@3|A@4 id=a|B@5", want: 1},
		{name: "a repeated person's message", say: "u@1 id=u|A@2|u@1 id=u|B@3", want: 2},
		{name: "entries without id are no repeats", say: "u@1|A@2 id=-|A@3 id=-|B@4", want: 3},
		{name: "the message recorded as a person's by another sidecar still counts", say: "u@1|A@2|B@3 id=x role=user|B@3 id=x", want: 2},

		// Pieces.
		{name: "pieces of one answer are one", say: "u@1 id=u|A@2 p=u|A@5 p=u|A@9 p=u", want: 1},
		{name: "pieces of a second bot are one", say: "u@1|A@2|B@3 p=a2|B@4 p=a2|B@5 p=a2", want: 2},
		{name: "a piece exactly 10 s later belongs", say: "A@2 p=x|A@12 p=x", want: 1},
		{name: "a piece more than 10 s later is new", say: "A@2 p=x|A@12.001 p=x", want: 2},
		{name: "each piece is measured from the last", say: "A@2 p=x|A@11 p=x|A@20 p=x|A@29 p=x", want: 1},
		{name: "no parent, no pieces", say: "u@1|A@2|A@3", want: 2},
		{name: "another parent, no piece", say: "u@1|A@2 p=x|A@3 p=y", want: 2},
		{name: "another sender, no piece", say: "A@2 p=a0|B@3 p=a0", want: 2},
		{name: "a piece behind another bot's message is new", say: "A@2 p=x|B@3|A@4 p=x", want: 3},
		{name: "senders without name are no pieces", say: "A@2 p=x from=-|A@3 p=x from=-", want: 2},

		{name: "pieces of one send are one without a parent", say: "u@1|A@2|A@3 part=a2|A@4 part=a2|A@5 part=a2", want: 1},
		{name: "pieces of one send are one whatever they reply to", say: "u@1 id=u|B@1.5|A@2 p=u|A@3 part=a2|A@4 p=x part=a2", want: 1},
		{name: "pieces of a later send are one", say: "u@1|A@2|B@3|B@4 part=b3|B@5 part=b3", want: 2},
		{name: "the beginning of another send is new", say: "u@1|A@2|A@3 part=a2|A@4|A@5 part=a4", want: 2},
		{name: "a piece of another send is new", say: "u@1|A@2|A@3 part=zz", want: 2},
		{name: "a piece of a send whose beginning is unknown belongs to the one before", say: "A@3 part=zz|A@4 part=zz", want: 1},
		{name: "a piece of another sender's send is new", say: "u@1|A@2|B@3 part=a2", want: 2},
		{name: "a piece of a send behind another bot's message is new", say: "u@1|A@2|B@3|A@4 part=a2", want: 3},
		{name: "a piece of a send more than 10 s later is new", say: "u@1|A@2|A@12.001 part=a2", want: 2},
		{name: "pieces of a send without a sender are new", say: "u@1|A@2 from=-|A@3 part=a2 from=-", want: 2},

		// Parallel answers.
		{name: "parallel answers to a person are one", say: "u@1 id=u|A@2 p=u|B@3 p=u|C@4 p=u", want: 1},
		{name: "an answer to parallel answers is 2", say: "u@1 id=u|A@2 p=u|B@3 p=u|C@4 p=u|A@5 p=b3", want: 2},
		{name: "parallel answers count once also when not adjacent", say: "u@1 id=u|A@2 p=u|B@3 p=a2|C@4 p=u|A@5 p=c4", want: 3},
		{name: "a second answer of one bot is no parallel one", say: "u@1 id=u|A@2 p=u|B@3 p=u|A@60 p=u", want: 2},
		{name: "a bot that spoke before may answer in parallel", say: "u@1 id=u|A@2|B@3 p=u|A@4 p=u|C@5", want: 3},
		{name: "pieces of a parallel answer count with it", say: "u@1 id=u|A@2 p=u|B@3 p=u|B@4 p=u|B@5 p=u|C@6 p=u", want: 1},
		{name: "pieces behind another bot's parallel answer are new", say: "u@1 id=u|A@2 p=u|B@3 p=u|A@4 p=u|B@5 p=u", want: 3},
		{name: "answers to an earlier person's message are not parallel", say: "u@1 id=u|u@2 id=v|A@3 p=u|B@4 p=u", want: 2},
		{name: "answers to a bot are not parallel", say: "u@1|A@2|B@3 p=a2|C@4 p=a2", want: 3},
		{name: "bots without name are not parallel", say: "u@1 id=u|A@2 p=u from=-|B@3 p=u from=-", want: 2},

		// Direct answers to a person.
		{name: "a direct answer behind late replies is 1", say: "u0@1 id=v|A@2 p=v id=a|u@3 id=u|B@4 p=a|C@5 p=a|A@6 p=u", want: 1},
		{name: "a direct answer of a bot that replied late before is 1", say: "u0@1 id=v|A@2 p=v id=a|u@3 id=u|B@4 p=a|C@5 p=a|B@6 p=u", want: 1},
		{name: "a direct answer behind any talk of bots is 1", say: "u@1 id=u|A@2|B@3|A@4|B@5|C@6 p=u", want: 1},
		{name: "pieces of a direct answer are 1 with it", say: "u@1 id=u|A@2|B@3|A@4|C@6 p=u|C@7 p=u|C@17 p=u", want: 1},
		{name: "a second direct answer counts all that bots said", say: "u@1 id=u|A@2|B@3|C@4 p=u|C@60 p=u", want: 4},
		{name: "a direct answer that goes on behind another bot counts all", say: "u@1 id=u|A@2|B@3|C@4 p=u|B@5|C@6 p=u", want: 5},
		{name: "what answers a direct answer counts all that bots said", say: "u@1 id=u|A@2|B@3|C@4 p=u|A@5 p=c4", want: 4},
		{name: "direct answers count once for others", say: "u@1 id=u|A@2 p=x|A@3 p=u|B@4 p=u|C@5 p=a3", want: 3},
		{name: "a direct answer to an older message of a person is not 1", say: "u@1 id=u|u2@2 id=v|A@3|B@4|C@5 p=u", want: 3},
		{name: "a direct answer in a topic on the person's message", say: "u@1 id=u|A@2 t=T r=u|B@3 t=T r=u|C@4 t=T r=u p=u", want: 1},
		{name: "a direct answer in a bot's topic does not restart the count", say: "u@1 id=u|A@2|B@3 t=T r=a2|C@4 t=T r=a2 p=b3", want: 3},
		{name: "a direct answer without a sender counts all", say: "u@1 id=u|A@2|B@3|C@4 p=u from=-", want: 3},
		{name: "a direct answer to a person's message unknown here", say: "A@1|B@5 p=a1 u=4|C@6 p=x u=4", want: 1},
		{name: "turns: a direct answer in a row of its sender is 1", say: "u@1 id=u|A@2|B@3|A@4 p=x|A@5 p=u", count: turns, want: 1},
		{name: "turns: so is what its sender goes on to say", say: "u@1 id=u|A@2|B@3|A@4 p=u|A@300", count: turns, want: 1},

		// user_ts.
		{name: "user_ts ends the count", say: "A@1|B@2|A@5 u=4", want: 1},
		{name: "user_ts of an earlier entry ends the count", say: "A@1|B@2|A@5 u=4|B@6", want: 2},
		{name: "an entry at user_ts is not counted", say: "A@1|B@4|A@5 u=4", want: 1},
		{name: "the message counts even at its own user_ts", say: "A@1|B@5 u=5", want: 1},
		{name: "a user_ts later than its entry is ignored", say: "A@1|B@2|A@5 u=6", want: 3},
		{name: "the newest user_ts wins", say: "A@1|B@2 u=1|C@5 u=4|D@6 u=1", want: 2},
		{name: "a user_ts of an entry after the message is not known yet", say: "A@1|B@2|C@5 u=1.5", of: "b2", want: 2},
		{name: "a known person later than user_ts ends it first", say: "A@1|u@3|B@4 u=2|C@5", want: 2},
		{name: "user_ts after a known person", say: "u@1|A@2|B@5 u=4|C@6", want: 2},
		{name: "user_ts of the known person", say: "u@1 id=u|A@2 p=u u=1|B@3 p=u u=1", want: 1},
		{name: "parallel answers to a person's message unknown here", say: "u@1|A@2|B@5 p=x u=4|C@6 p=x u=4", want: 1},
		{name: "the same with nothing between the heard and the unheard", say: "u@1 id=u|A@5 p=x u=4|B@6 p=x u=4", want: 1},
		{name: "unheard person, different parents", say: "B@5 p=x u=4|C@6 p=y u=4", want: 2},
		{name: "unheard person, a known parent is not theirs", say: "A@1|B@5 p=a1 u=4|C@6 p=a1 u=4", want: 2},
		{name: "unheard person, no parent", say: "B@5 u=4|C@6 u=4", want: 2},
		{name: "without user_ts a shared unknown parent joins nothing", say: "B@5 p=x|C@6 p=x", want: 2},

		// Topics.
		{name: "a topic is counted on its own", say: "A@1|B@2|A@3|u@4 t=T|A@5 t=T|C@6|B@7 t=T", want: 2},
		{name: "the chat is counted without its topics", say: "u@1|A@2|B@3 t=T|C@4 t=T|B@5", want: 2},
		{name: "a person in a topic does not reset the chat", say: "A@1|u@2 t=T|B@3", want: 2},
		{name: "a person in the chat does not reset a topic", say: "A@1 t=T|u@2|B@3 t=T", want: 2},
		{name: "a person in another topic does not reset this one", say: "A@1 t=T|u@2 t=S|B@3 t=T", want: 2},
		{name: "a topic on a person's message begins at 1", say: "A@1|u@2 id=u|A@3 t=T r=u", want: 1},
		{name: "parallel answers in a topic on a person's message", say: "u@2 id=u|A@3 t=T r=u p=u|B@4 t=T r=u p=u", want: 1},
		{name: "the same when all knew of that person", say: "u@2 id=u|A@3 t=T r=u p=u u=2|B@4 t=T r=u p=u u=2", want: 1},
		{name: "a bot's topic does not reset", say: "u@1|A@2|B@3 t=T r=a2|A@4 t=T r=a2", want: 3},
		{name: "a bot's topic goes on before its root", say: "u@1|A@2|B@3|C@4 t=T r=b3", want: 3},
		{name: "what follows the root in the chat is not in the topic", say: "u@1|A@2|B@3|C@4|D@5 t=T r=a2", want: 2},
		{name: "the root is named by another entry of the topic", say: "u@1|A@2|B@3 t=T r=a2|C@4 t=T", want: 3},
		{name: "the root carries the topic's id", say: "u@1|A@2|B@3 t=T|C@4 t=T r=b3", want: 3},
		{name: "what follows such a root in the chat is not in the topic", say: "u@1|A@2|B@3 t=T|C@4|D@5 t=T r=b3", want: 3},
		{name: "another topic's first message does not precede such a root", say: "u@1|A@2|X@2.5 t=S|B@3 t=T|C@4 t=T r=b3", want: 3},
		{name: "the root carries the topic's id and names itself", say: "u@1|A@2|B@3 t=T r=b3|C@4 t=T r=b3", want: 3},
		{name: "an unknown root ends the count", say: "A@1|B@2|C@3 t=T r=zz|D@4 t=T r=zz", want: 2},
		{name: "a topic that names no root ends at its beginning", say: "A@1|B@2|C@3 t=T|D@4 t=T", want: 2},
		{name: "a person in the topic ends it before the root", say: "A@1|B@2|u@3 t=T r=b2|C@4 t=T r=b2", want: 1},
		{name: "user_ts in the topic ends it before the root", say: "A@1|B@2|C@4 t=T r=b2 u=3", want: 1},
		{name: "user_ts before the root counts there", say: "A@1|B@3 u=2|C@4 t=T r=b3", want: 2},
		{name: "roots that name each other end", say: "A@1 t=T r=b2|B@2 t=S r=a1|C@3 t=T r=b2", want: 3},
		{name: "a message that is its own root", say: "A@1 t=T r=a1", want: 1},
		{name: "topic group: new topics do not reset", say: "u@1 t=T1|A@2 t=T2|B@3 t=T3|C@4 t=T4", want: 3},
		{name: "topic group: a person's topic resets", say: "A@2 t=T2|B@3 t=T3|u@4 t=T4|C@5 t=T5", want: 1},
		{name: "topic group: answers inside of topics are not openings", say: "u@1 t=T1|A@2 t=T1 r=u1|B@3 t=T1 r=u1|C@4 t=T2", want: 1},
		{name: "topic group: a topic on a bot's topic", say: "u@1 t=T1|A@2 t=T2|B@3 t=T3|C@4 t=T3 r=b3", want: 3},

		// Turns.
		{name: "turns: neighbours of one sender are one", say: "u@1|A@2|A@60|A@300", count: turns, want: 1},
		{name: "turns: another sender between", say: "u@1|A@2|A@3|B@4|A@5|A@6", count: turns, want: 3},
		{name: "turns: parallel answers with their turns", say: "u@1 id=u|A@2 p=u|A@40|B@50 p=u|B@90", count: turns, want: 1},
		{name: "turns: senders without name each count", say: "u@1|A@2 from=-|A@3 from=-", count: turns, want: 2},

		// Pauses.
		{name: "idle: a pause before the message ends the count", say: "A@1|B@2|A@62", count: idle, want: 1},
		{name: "idle: a pause further back ends it there", say: "A@1|B@70|A@71|B@72", count: idle, want: 3},
		{name: "idle: the last pause counts", say: "A@1|B@70|A@140|B@141", count: idle, want: 2},
		{name: "idle: shorter pauses do not", say: "A@1|B@60|A@119", count: idle, want: 3},
		{name: "idle: off by default", say: "A@1|B@3600", want: 2},
		{name: "idle: parallel answers after a pause stay parallel", say: "u@1 id=u|A@2 p=u|B@100 p=u|C@101 p=u", count: idle, want: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			entries := say(t, tt.say)
			m := entries[len(entries)-1]
			for _, e := range entries {
				if tt.of != "" && e.MessageID == tt.of {
					m = e
				}
			}
			if got := policy.Depth(entries, m, tt.count); got != tt.want {
				t.Errorf("Depth = %d, want %d, in %q", got, tt.want, tt.say)
			}
		})
	}
}

// A message that the transcript does not hold yet has the same depth as after.
func TestDepthBeforeItIsRecorded(t *testing.T) {
	for _, text := range []string{
		"u@1|A@2|B@3", "A@1|B@1|C@1", "u@1 id=u|A@2 p=u|B@2 p=u", "A@1|B@2|C@3 t=T r=b2",
	} {
		entries := say(t, text)
		last := len(entries) - 1
		got := policy.Depth(entries[:last], entries[last], policy.Count{})
		want := policy.Depth(entries, entries[last], policy.Count{})
		if got != want {
			t.Errorf("%q: depth %d before and %d after it is recorded", text, got, want)
		}
	}
}

// The five fields that every transcript line has are enough to ask about a message: the
// rest comes from the caller.
func TestDepthTakesTheMessageAsPassed(t *testing.T) {
	entries := say(t, "A@1|B@2|C@5")
	m := say(t, "C@5 u=4")[0]
	if got, want := policy.Depth(entries, m, policy.Count{}), 1; got != want {
		t.Errorf("Depth = %d, want %d", got, want)
	}
	m.TS, m.UserTS = 0, 0 // the transcript knows the time
	entries = append(entries, say(t, "u@6|A@7")...)
	if got, want := policy.Depth(entries, m, policy.Count{}), 3; got != want {
		t.Errorf("Depth without ts = %d, want %d", got, want)
	}
}

func TestDepthExtremeTimes(t *testing.T) {
	e := []policy.Entry{
		{Sender: "A", MessageID: "a", ParentID: "x", TS: math.MinInt64},
		{Sender: "A", MessageID: "b", ParentID: "x", TS: math.MaxInt64},
	}
	c := policy.Count{IdleReset: math.MaxInt64 / 2}
	if got, want := policy.Depth(e, e[1], policy.Count{}), 2; got != want {
		t.Errorf("Depth = %d, want %d", got, want)
	}
	if got, want := policy.Depth(e, e[1], c), 1; got != want {
		t.Errorf("Depth after an endless pause = %d, want %d", got, want)
	}
}

func TestDepthDoesNotChangeItsInput(t *testing.T) {
	entries := say(t, "B@3|A@2|u@1|C@4 role=")
	before := append([]policy.Entry(nil), entries...)
	policy.Depth(entries, entries[3], policy.Count{})
	for i := range entries {
		if entries[i] != before[i] {
			t.Errorf("entry %d changed", i)
		}
	}
}
