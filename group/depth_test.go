package group

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"feishu-relay/policy"
	"feishu-relay/relay"
)

// talk reads a history in short: one message a word list, separated by "|", as "A@3 p=u1 t=T r=a0 u=2": sender A at
// second 3, answering u1 in topic T with root a0, having known a person's message of second 2. Senders that begin with
// u are people. The id is the lower-case sender and second ("a3") unless given.
func talk(t *testing.T, history string) (lines []*Line) {
	t.Helper()
	seconds := func(text string) relay.Millis {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		return relay.Millis(f * 1000)
	}
	for m := range strings.SplitSeq(history, "|") {
		words := strings.Fields(m)
		sender, at, _ := strings.Cut(words[0], "@")
		l := &Line{ID: relay.MessageID(strings.ToLower(sender) + at), Bot: relay.AgentName(sender), TS: seconds(at)}
		if strings.HasPrefix(sender, "u") {
			l.Bot, l.Person = "", sender
		}
		for _, word := range words[1:] {
			key, v, _ := strings.Cut(word, "=")
			switch key {
			case "p":
				l.Parent = relay.MessageID(v)
			case "t":
				l.Thread = v
			case "r":
				l.Root = relay.MessageID(v)
			case "u":
				l.UserTS = seconds(v)
			case "id":
				l.ID = relay.MessageID(v)
			case "part":
				l.PartOf = relay.MessageID(v)
			case "from":
				l.Bot = unknownBot
			case "recalled":
				l.Recalled = true
			case "had":
				l.Verdicts = []Verdict{{Agent: "me", Delivered: 1}}
			default:
				t.Fatalf("unknown %q", word)
			}
		}
		lines = append(lines, l)
	}
	return lines
}

// TestDepth asks for the last message of each history, unless of names another.
func TestDepth(t *testing.T) {
	turns, idle := policy.Count{Turns: true}, policy.Count{IdleReset: time.Minute}
	said := []string{"u@1"}
	for i := range maxDepth + 100 {
		said = append(said, "A@"+strconv.Itoa(i+2))
	}
	monologue, unnamed := strings.Join(said, "|"), strings.Join(said[1:], " from=-|")+" from=-"
	for _, tt := range []struct {
		name  string
		say   string
		of    string
		count policy.Count
		want  int
	}{
		// A row of bots.
		{name: "what comes after the message is not counted", say: "u@1|A@2|B@3|A@4|B@5", of: "a2", want: 1},
		{name: "only the last person's message resets", say: "u@1|A@2|u@3|A@4|B@5", want: 2},
		{name: "a person after the message does not reset it", say: "A@1|B@2|u@3", of: "b2", want: 2},
		{name: "two people in a row", say: "A@1|u@2|u2@3|B@4", want: 1},
		{name: "a monologue is not ended by an answer", say: monologue + "|A@2000|B@2001|A@2002 p=u1", want: maxDepth + 102},
		{name: "another bot counts as far as it goes", say: monologue + "|B@2000", want: maxDepth},
		{name: "senders without name count one by one, as far as it goes", say: unnamed, want: maxDepth},
		{name: "a person ends it", say: monologue + "|u@2000|A@2001", want: 1},

		// Order.
		{name: "entries are ordered by ts", say: "A@5|u@1|B@3|C@6", want: 3},
		{name: "a late person's entry with an early ts resets where it was said", say: "A@2|B@4|u@3", of: "b4", want: 1},
		{name: "equal ts keep the given order", say: "u@1|A@1|B@1", want: 2},
		{name: "equal ts, person last, message before it", say: "A@1|B@1|u@1", of: "b1", want: 2},
		{name: "equal ts, person between", say: "A@1|u@1|B@1", want: 1},
		{name: "an entry without ts is the oldest", say: "A@0|u@1|B@2", want: 1},

		// Repeats.
		{name: "one answer recorded by three bots is one", say: "u@1|A@2 id=a|A@2 id=a|A@2 id=a|B@3", want: 2},
		{name: "repeats of the message itself", say: "u@1|A@2 id=a|A@2 id=a|A@2 id=a", want: 1},
		{name: "a repeat with another ts is no second message", say: "u@1|A@2 id=a|A@4 id=a|B@5", want: 2},
		{name: "the first of repeats counts", say: "A@2 id=a|u@3|A@4 id=a|B@5", want: 1},
		{name: "a repeated person's message", say: "u@1 id=u|A@2|u@1 id=u|B@3", want: 2},

		// Pieces.
		{name: "pieces of a second bot are one", say: "u@1|A@2|B@3 p=a2|B@4 p=a2|B@5 p=a2", want: 2},
		{name: "another parent, no piece", say: "u@1|A@2 p=x|A@3 p=y", want: 2},
		{name: "another sender, no piece", say: "A@2 p=a0|B@3 p=a0", want: 2},
		{name: "a piece behind another bot's message is new", say: "A@2 p=x|B@3|A@4 p=x", want: 3},
		{name: "senders without name are no pieces", say: "A@2 p=x from=-|A@3 p=x from=-", want: 2},

		{name: "pieces of one send are one without a parent", say: "u@1|A@2|A@3 part=a2|A@4 part=a2|A@5 part=a2", want: 1},
		{name: "pieces of one send are one whatever they reply to",
			say: "u@1 id=u|B@1.5|A@2 p=u|A@3 part=a2|A@4 p=x part=a2", want: 1},
		{name: "pieces of a later send are one", say: "u@1|A@2|B@3|B@4 part=b3|B@5 part=b3", want: 2},
		{name: "the beginning of another send is new", say: "u@1|A@2|A@3 part=a2|A@4|A@5 part=a4", want: 2},
		{name: "a piece of another send is new", say: "u@1|A@2|A@3 part=zz", want: 2},
		{name: "a piece of a send whose beginning is unknown belongs to the one before",
			say: "A@3 part=zz|A@4 part=zz", want: 1},
		{name: "a piece of another sender's send is new", say: "u@1|A@2|B@3 part=a2", want: 2},
		{name: "a piece of a send behind another bot's message is new", say: "u@1|A@2|B@3|A@4 part=a2", want: 3},
		{name: "a piece of a send more than 10 s later is new", say: "u@1|A@2|A@12.001 part=a2", want: 2},
		{name: "pieces of a send without a sender are new", say: "u@1|A@2 from=-|A@3 part=a2 from=-", want: 2},

		// Parallel answers.
		{name: "an answer to parallel answers is 2", say: "u@1 id=u|A@2 p=u|B@3 p=u|C@4 p=u|A@5 p=b3", want: 2},
		{name: "parallel answers count once also when not adjacent",
			say: "u@1 id=u|A@2 p=u|B@3 p=a2|C@4 p=u|A@5 p=c4", want: 2},
		{name: "a second answer of one bot is no parallel one", say: "u@1 id=u|A@2 p=u|B@3 p=u|A@60 p=u", want: 2},
		{name: "a bot that spoke before may answer in parallel", say: "u@1 id=u|A@2|B@3 p=u|A@4 p=u|C@5", want: 3},
		{name: "pieces of a parallel answer count with it",
			say: "u@1 id=u|A@2 p=u|B@3 p=u|B@4 p=u|B@5 p=u|C@6 p=u", want: 1},
		{name: "pieces behind another bot's parallel answer are new",
			say: "u@1 id=u|A@2 p=u|B@3 p=u|A@4 p=u|B@5 p=u", want: 3},
		{name: "answers to an earlier person's message are not parallel",
			say: "u@1 id=u|u@2 id=v|A@3 p=u|B@4 p=u", want: 2},
		{name: "answers to one message of a bot are equally deep", say: "u@1|A@2|B@3 p=a2|C@4 p=a2", want: 2},
		{name: "bots without name are not parallel", say: "u@1 id=u|A@2 p=u from=-|B@3 p=u from=-", want: 2},

		// Direct answers to a person.
		{name: "a direct answer of a bot that replied late before is 1",
			say: "u0@1 id=v|A@2 p=v id=a|u@3 id=u|B@4 p=a|C@5 p=a|B@6 p=u", want: 1},
		{name: "a direct answer behind any talk of bots is 1", say: "u@1 id=u|A@2|B@3|A@4|B@5|C@6 p=u", want: 1},
		{name: "pieces of a direct answer are 1 with it", say: "u@1 id=u|A@2|B@3|A@4|C@6 p=u|C@7 p=u|C@17 p=u", want: 1},
		{name: "a second direct answer counts all that bots said", say: "u@1 id=u|A@2|B@3|C@4 p=u|C@60 p=u", want: 4},
		{name: "a direct answer that goes on behind another bot counts all",
			say: "u@1 id=u|A@2|B@3|C@4 p=u|B@5|C@6 p=u", want: 5},
		{name: "what answers a direct answer is one deeper", say: "u@1 id=u|A@2|B@3|C@4 p=u|A@5 p=c4", want: 2},
		{name: "direct answers count once for others", say: "u@1 id=u|A@2 p=x|A@3 p=u|B@4 p=u|C@5", want: 3},
		{name: "a direct answer to an older message of a person is not 1",
			say: "u@1 id=u|u2@2 id=v|A@3|B@4|C@5 p=u", want: 3},
		{name: "a direct answer in a topic on the person's message",
			say: "u@1 id=u|A@2 t=T r=u|B@3 t=T r=u|C@4 t=T r=u p=u", want: 1},
		{name: "a direct answer in a bot's topic does not restart the count",
			say: "u@1 id=u|A@2|B@3 t=T r=a2|C@4 t=T r=a2 p=b3", want: 3},
		{name: "a direct answer without a sender counts all", say: "u@1 id=u|A@2|B@3|C@4 p=u from=-", want: 3},
		{name: "a direct answer to a person's message unknown here", say: "A@1|B@5 p=a1 u=4|C@6 p=x u=4", want: 1},
		{name: "turns: a direct answer in a row of its sender is 1",
			say: "u@1 id=u|A@2|B@3|A@4 p=x|A@5 p=u", count: turns, want: 1},
		{name: "turns: so is what its sender goes on to say", say: "u@1 id=u|A@2|B@3|A@4 p=u|A@300", count: turns, want: 1},

		// user_ts.
		{name: "user_ts of an earlier entry ends the count", say: "A@1|B@2|A@5 u=4|B@6", want: 2},
		{name: "an entry at user_ts is not counted", say: "A@1|B@4|A@5 u=4", want: 1},
		{name: "the message counts even at its own user_ts", say: "A@1|B@5 u=5", want: 1},
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
		{name: "parallel answers in a topic on a person's message",
			say: "u@2 id=u|A@3 t=T r=u p=u|B@4 t=T r=u p=u", want: 1},
		{name: "the same when all knew of that person", say: "u@2 id=u|A@3 t=T r=u p=u u=2|B@4 t=T r=u p=u u=2", want: 1},
		{name: "what follows the root in the chat is not in the topic", say: "u@1|A@2|B@3|C@4|D@5 t=T r=a2", want: 2},
		{name: "the root is named by another entry of the topic", say: "u@1|A@2|B@3 t=T r=a2|C@4 t=T", want: 3},
		{name: "the root carries the topic's id", say: "u@1|A@2|B@3 t=T|C@4 t=T r=b3", want: 3},
		{name: "what follows such a root in the chat is not in the topic",
			say: "u@1|A@2|B@3 t=T|C@4|D@5 t=T r=b3", want: 3},
		{name: "another topic's first message does not precede such a root",
			say: "u@1|A@2|X@2.5 t=S|B@3 t=T|C@4 t=T r=b3", want: 3},
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
		{name: "topic group: answers inside of topics are not openings",
			say: "u@1 t=T1|A@2 t=T1 r=u1|B@3 t=T1 r=u1|C@4 t=T2", want: 1},
		{name: "topic group: a topic on a bot's topic", say: "u@1 t=T1|A@2 t=T2|B@3 t=T3|C@4 t=T3 r=b3", want: 3},

		// Replies to bots.
		{name: "and again", say: "u@1 id=u|A@2 p=u|B@2.1 p=u|A@3 p=b2.1|B@3.1 p=a2|B@4 p=a3|A@4 p=b3.1", want: 3},
		{name: "a sender rises also where it answers the same again", say: "u@1|A@2|B@3 p=a2|B@20 p=a2|B@40 p=a2", want: 4},
		{name: "a sender rises whatever its clock says", say: "u@1|A@2|B@9 p=a2|B@5 p=a2", want: 3},
		{name: "a reply to a message of before counts all", say: "A@1|u@2|B@3|C@4 p=a1", want: 2},
		{name: "a reply to what is not known counts all", say: "u@1|A@2|B@3|C@4 p=zz", want: 3},

		// Recalls.
		{name: "a person's message ends the count though it was recalled", say: "A@1|u@2 recalled|B@3", want: 1},

		// Turns.
		{name: "turns: another sender between", say: "u@1|A@2|A@3|B@4|A@5|A@6", count: turns, want: 3},
		{name: "turns: parallel answers with their turns",
			say: "u@1 id=u|A@2 p=u|A@40|B@50 p=u|B@90", count: turns, want: 1},
		{name: "turns: senders without name each count", say: "u@1|A@2 from=-|A@3 from=-", count: turns, want: 2},

		// Pauses.
		{name: "idle: a pause further back ends it there", say: "A@1|B@70|A@71|B@72", count: idle, want: 3},
		{name: "idle: the last pause counts", say: "A@1|B@70|A@140|B@141", count: idle, want: 2},
		{name: "idle: shorter pauses do not", say: "A@1|B@60|A@119", count: idle, want: 3},
		{name: "idle: off by default", say: "A@1|B@3600", want: 2},
		{name: "idle: parallel answers after a pause stay parallel",
			say: "u@1 id=u|A@2 p=u|B@100 p=u|C@101 p=u", count: idle, want: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := New()
			s.d.Config = Config{Agent: "me", Count: tt.count}
			lines := talk(t, tt.say)
			m := lines[len(lines)-1]
			for _, l := range lines {
				if l.Bot != "" {
					l.Depth, l.Round = s.depth(l)
				}
				if s.byID[l.ID] == nil {
					s.insert(l)
				}
				if string(l.ID) == tt.of {
					m = l
				}
			}
			if got, _ := s.depth(m); got != tt.want {
				t.Errorf("depth = %d, want %d, in %q", got, tt.want, tt.say)
			}
		})
	}
}
