package httpapi

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"feishu-relay/outcome"
	"feishu-relay/relay"
	"feishu-relay/steer"
	"feishu-relay/transcript"
)

// maxUnanswered is how many unanswered messages of bots are remembered for a bot; beyond it the oldest is
// dropped.
const maxUnanswered = 50

// brief is a message without its text, and the bots that its text names.
type brief struct {
	transcript.Entry
	names []relay.AgentName
}

// named returns the bots that a text names with an @.
func named(text string, bots []steer.Bot) (found []relay.AgentName) {
	if !strings.Contains(text, "@") {
		return nil
	}
	for _, b := range bots {
		if namedAs(text, b.Name) || namedAs(text, string(b.Agent)) {
			found = append(found, b.Agent)
		}
	}
	return found
}

// namedAs reports whether a text has @name, not as a part of a longer name.
func namedAs(text, name string) bool {
	for name != "" {
		_, behind, ok := strings.Cut(text, "@"+name)
		if !ok {
			break
		}
		if next, _ := utf8.DecodeRuneInString(behind); behind == "" ||
			!unicode.IsLetter(next) && !unicode.IsDigit(next) && next != '_' || unicode.Is(unicode.Han, next) {
			return true
		}
		text = behind
	}
	return false
}

// place is a bot in a group or in a topic of it.
type place struct {
	bot    relay.AgentName
	thread string
}

// unanswered is the messages that a bot has got in a place and not answered.
type unanswered struct {
	answered *brief   // the newest message of a person that it has answered or skipped
	bots     []*brief // messages of other bots since, in the order of their delivery
}

// step is an event in a group: a message is written, or delivered to a bot.
type step struct {
	at int64
	e  *brief
	to relay.AgentName // the bot that e is delivered to; "": e is written
}

// countAnswers counts the authors whose messages the bots answer. A reply answers the author of its parent.
// Another message answers the newest message of a bot that names its sender, else the newest of a person,
// else the newest of a bot, each only if its sender has got it and has answered neither it nor a later one.
// So bots that answer a person at the same time all count as answering the person.
func (in *insight) countAnswers(entries []brief, byID map[relay.MessageID]*brief, outcomes []outcome.Outcome) {
	var steps []step
	for i := range entries {
		steps = append(steps, step{at: entries[i].TS, e: &entries[i]})
	}
	type atBot struct {
		id  relay.MessageID
		bot relay.AgentName
	}
	stopped := map[atBot]bool{}
	for _, o := range outcomes {
		e := byID[o.RelayMsgID]
		switch {
		case e == nil:
		case o.Stopped != "":
			stopped[atBot{o.RelayMsgID, o.Agent}] = true
		case e.Role == transcript.RoleAssistant && o.Delivered != 0:
			steps = append(steps, step{max(e.TS, int64(o.Delivered)), e, o.Agent})
		}
	}
	slices.SortStableFunc(steps, func(x, y step) int { return cmp.Compare(x.at, y.at) })

	people := map[string]*brief{} // the newest message of a person, by topic
	at := map[place]*unanswered{}
	of := func(bot relay.AgentName, thread string) *unanswered {
		key := place{bot, thread}
		if at[key] == nil {
			at[key] = &unanswered{}
		}
		return at[key]
	}
	answers := map[answer]int{}
	for _, s := range steps {
		sender := relay.AgentName(s.e.Sender)
		switch {
		case s.to != "":
			of(s.to, s.e.ThreadID).given(s.e)
			continue
		case s.e.Role != transcript.RoleAssistant:
			people[s.e.ThreadID] = s.e
			continue
		}
		person := people[s.e.ThreadID]
		if person != nil && stopped[atBot{relay.MessageID(person.MessageID), sender}] {
			person = nil
		}
		to := of(sender, s.e.ThreadID).answer(s.e, sender, person, byID[relay.MessageID(s.e.ParentID)])
		if to == nil || s.e.TS < in.From || s.e.TS >= in.To {
			continue // the answered message is not known
		}
		pair := answer{From: sender}
		if to.Role == transcript.RoleAssistant {
			pair.To = relay.AgentName(to.Sender)
		}
		answers[pair]++
	}
	in.Answers = []answer{}
	for pair, n := range answers {
		pair.N = n
		in.Answers = append(in.Answers, pair)
	}
	slices.SortFunc(in.Answers, func(x, y answer) int {
		return cmp.Or(cmp.Compare(y.N, x.N), cmp.Compare(x.From, y.From), cmp.Compare(x.To, y.To))
	})
	in.Answers = in.Answers[:min(len(in.Answers), insightAnswers)]
}

func (u *unanswered) given(e *brief) {
	if len(u.bots) == maxUnanswered {
		u.bots = slices.Delete(u.bots, 0, 1)
	}
	u.bots = append(u.bots, e)
}

// answer returns the message that a bot's message e answers, or nil if it is not known. That message and
// those delivered before it no longer count as unanswered. person is the newest message of a person there,
// parent the one that e replies to.
func (u *unanswered) answer(e *brief, bot relay.AgentName, person, parent *brief) (to *brief) {
	if person == u.answered {
		person = nil
	}
	if person != nil {
		u.bots = slices.DeleteFunc(u.bots, func(b *brief) bool { return b.TS < person.TS })
	}
	if to = parent; to == nil && e.ParentID != "" || to != nil && to.Sender == e.Sender && to.Role == e.Role {
		return nil // older than the messages read, or its own
	}
	for i := len(u.bots) - 1; i >= 0 && to == nil; i-- {
		if slices.Contains(u.bots[i].names, bot) {
			to = u.bots[i]
		}
	}
	if to = cmp.Or(to, person); to == nil && len(u.bots) > 0 {
		to = u.bots[len(u.bots)-1]
	}
	u.bots = slices.Delete(u.bots, 0, slices.Index(u.bots, to)+1)
	if to != nil && person != nil && to.TS >= person.TS {
		u.answered = person
	}
	return to
}
