package group

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"feishu-relay/policy"
	"feishu-relay/relay"
)

// Group is a group as GET /v1/groups/{chat} shows it; the caller adds channel, chat and name.
type Group struct {
	Locked   bool              `json:"locked"`
	Version  string            `json:"version"`
	Settings Settings          `json:"settings"`
	Sources  map[string]string `json:"sources"`
	Bots     []Bot             `json:"bots"`
	Depth    int               `json:"depth"` // of the newest message
	LastStop *LastStop         `json:"last_stop,omitempty"`
	Stopped  bool              `json:"-"` // by a person, and no person has spoken since
}

// Bot is a bot of a group.
type Bot struct {
	Agent  relay.AgentName `json:"agent"`
	Name   string          `json:"name"`
	Online bool            `json:"online"`
}

// LastStop is the newest message that stopped at a bot.
type LastStop struct {
	MessageID relay.MessageID   `json:"message_id"`
	Sender    relay.AgentName   `json:"sender"`
	Bots      []relay.AgentName `json:"bots"` // at which it stopped
	Reason    relay.Reason      `json:"reason"`
	At        relay.Millis      `json:"at"`
}

// View is the group at a time.
func (s *State) View(now time.Time) Group {
	s.clock, s.now = now, relay.MillisOf(now)
	g := Group{Locked: s.d.Config.Locked, Version: s.d.Settings.version(), Settings: s.settings(), Sources: s.sources(),
		Bots: []Bot{}, LastStop: s.lastStop()}
	for _, m := range s.members() {
		g.Bots = append(g.Bots, Bot{m.Agent, m.Name, m.Agent == s.d.Config.Agent || s.d.Online[m.Agent]})
	}
	if n := len(s.d.Lines); n > 0 {
		newest := s.d.Lines[n-1]
		g.Depth = newest.Depth
		g.Stopped = s.stoppedByPerson(&Line{Bot: unknownBot, TS: max(s.now, newest.TS)})
	}
	return g
}

// Lines are the known messages of the chat, oldest first. They are not to be changed.
func (s *State) Lines() []*Line { return s.d.Lines }

// Line is a known message, nil if there is none. It is not to be changed.
func (s *State) Line(id relay.MessageID) *Line { return s.byID[id] }

// Shown are the newest commands and notices, oldest first. They are not to be changed.
func (s *State) Shown() []Record { return s.d.Shown }

// Gone reports whether a message was recalled.
func (s *State) Gone(id relay.MessageID) bool { return s.d.Gone[id] > 0 }

// Reacted reports whether a stop was, or is about to be, shown on a message by a reaction of any sidecar. Where none
// can write, it also was if it is only recorded.
func (s *State) Reacted(id relay.MessageID) bool {
	isTurn := func(t *turn) bool { return t.Kind == turnStop && t.Of == id }
	isNotice := func(r Record) bool { return r.Kind == KindNotice && r.Act == ActStop && r.Of == id }
	return slices.ContainsFunc(slices.Collect(maps.Values(s.d.Turns)), isTurn) || slices.ContainsFunc(s.d.Shown, isNotice)
}

// lastStop is the newest message of a bot that stopped for all to know.
func (s *State) lastStop() *LastStop {
	for _, l := range slices.Backward(s.d.Lines) {
		stop := LastStop{MessageID: l.ID, Sender: l.Bot}
		for _, v := range l.Verdicts {
			if l.Bot == "" || slices.Contains([]relay.Reason{"", relay.NotForMe, relay.NotMentioned, relay.Muted}, v.Stopped) {
				continue // others got it
			}
			stop.Reason = cmp.Or(stop.Reason, v.Stopped)
			stop.Bots, stop.At = append(stop.Bots, v.Agent), max(stop.At, v.At)
		}
		if len(stop.Bots) > 0 {
			slices.Sort(stop.Bots)
			return &stop
		}
	}
	return nil
}

// statusText is how things stand.
func (s *State) statusText(chinese bool) string {
	g, members := s.View(s.clock), s.members()
	var lines []string
	line := func(key string, args ...any) { lines = append(lines, say(key, args...).in(chinese)) }
	bots := map[bool][]relay.AgentName{}
	for _, b := range g.Bots {
		bots[b.Online] = append(bots[b.Online], b.Agent)
	}
	if on := bots[true]; len(on) > 0 {
		line("online", len(on), labels(members, on...))
	} else {
		line("nobody online")
	}
	if off := bots[false]; len(off) > 0 {
		line("offline", len(off), labels(members, off...))
	}
	set := &g.Settings
	lines = append(lines, s.answers(set).in(chinese))
	line("in a row", g.Depth, set.Limit, set.Threshold, stateWords[set.Judge])
	if set.Budget > 0 {
		line("is budget", set.Budget)
	}
	if set.Paused != nil {
		line("is paused", s.ending(set.Paused))
	}
	if g.Stopped {
		line("is stopped")
	}
	var muted names
	for _, agent := range slices.Sorted(maps.Keys(set.Muted)) {
		muted = append(muted, labels(members, agent)[0]+s.ending(set.Muted[agent]).in(chinese))
	}
	if len(muted) > 0 {
		line("are muted", len(muted), muted)
	}
	if g.Locked {
		line("locked")
	}
	if l := g.LastStop; l != nil {
		line("last stop", s.moment(l.At), labels(members, l.Sender), labels(members, l.Bots...), means(l.Reason))
	}
	return strings.Join(lines, "\n")
}

// ending is when a pause ends, as it follows what is paused; "" where somebody ends it.
func (s *State) ending(u *Until) text2 {
	if u.Until == nil {
		return text2{}
	}
	return say("until", s.moment(*u.Until))
}

// answers says who answers a message that names no bot.
func (s *State) answers(set *Settings) text2 {
	def := here([]relay.AgentName{set.DefaultBot}, s.members())
	switch {
	case set.Answer == ModeNamed:
		return say("answer named")
	case (set.Answer == ModeDefault || set.Answer == ModeOne) && len(def) > 0:
		return say("answer default", labels(s.members(), def...))
	case set.Answer == ModeDefault:
		return say("answer no default")
	case set.Answer == ModeOne:
		return say("answer one")
	}
	return say("answer all")
}

// whyText is what became of a message at each bot, and what people can do; without an id, of the last one that
// stopped.
func (s *State) whyText(id relay.MessageID, chinese bool) string {
	if last := s.lastStop(); id == "" && last != nil {
		id = last.MessageID
	}
	var lines, hints []string
	line := func(key string, args ...any) { lines = append(lines, say(key, args...).in(chinese)) }
	l, members := cmp.Or(s.byID[id], &Line{}), s.members()
	if l.Bot != "" {
		line("about", labels(members, l.Bot))
	}
	if len(l.Verdicts) == 0 {
		line("no fate")
	}
	verdicts := slices.Clone(l.Verdicts)
	slices.SortFunc(verdicts, func(a, b Verdict) int { return cmp.Compare(a.Agent, b.Agent) })
	for _, v := range verdicts {
		bot := labels(members, v.Agent)
		switch {
		case v.Stopped != "":
			line("was stopped", bot, means(v.Stopped), s.moment(v.At))
			if h := hint(v.Stopped, s.d.Config.Commands, chinese); h != "" && !slices.Contains(hints, h) {
				hints = append(hints, h)
			}
		case v.delivered():
			line("delivered", bot, s.moment(v.Delivered))
		default:
			line("waits", bot)
		}
	}
	return strings.Join(append(lines, hints...), "\n")
}

// Early are the verdicts on messages that are not known, by message. They are not to be changed.
func (s *State) Early() map[relay.MessageID][]Verdict { return s.d.Early }

// Weigh is what would become of a message if it came at the time of an [Arrived] or a [Heard]; nothing is changed.
// Without a decision the message is for this bot, or why says why not; asks: the judge has to say.
func (s *State) Weigh(e Event) (why relay.Reason, d *policy.Decision, asks bool) {
	t := New()
	if err := json.Unmarshal(encode(s), t); err != nil {
		panic(err) // it is what MarshalJSON has made
	}
	t.d.Queue, t.d.CaughtUp = nil, true
	t.d.Lines = slices.DeleteFunc(t.d.Lines, func(l *Line) bool { return l.ID == e.Msg.ID() })
	delete(t.byID, e.Msg.ID())
	if e.Kind == Heard {
		why = relay.NotForMe
	}
	effects, _ := t.Apply(e)
	for _, e := range effects {
		switch e.Do {
		case Give, Claim:
			return relay.Pass, nil, false
		case Withhold, Stop, Deliver, Ask:
			return e.Reason, e.Decision, e.Do == Ask
		}
	}
	return why, nil, false
}
