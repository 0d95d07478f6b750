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

// Group is a group as GET /v1/groups/{chat} shows it. The caller adds where it is, and what it is called.
type Group struct {
	Channel  string            `json:"channel"`
	ChatID   relay.ChatID      `json:"chat_id"`
	Name     string            `json:"name,omitempty"`
	Locked   bool              `json:"locked"` // nothing can be changed
	Version  string            `json:"version"`
	Settings Settings          `json:"settings"`
	Sources  map[string]string `json:"sources"` // of each key of the settings: record, file or env
	Bots     []Bot             `json:"bots"`
	Depth    int               `json:"depth"` // of the newest message; 0 after a continue
	LastStop *LastStop         `json:"last_stop,omitempty"`
	Stopped  bool              `json:"-"` // by a person, and no person has spoken since
}

// Bot is a bot of a group.
type Bot struct {
	Agent  relay.AgentName `json:"agent"`
	Name   string          `json:"name"`
	Online bool            `json:"online"` // its sidecar is
	// Away is since when the bot is not connected, though its sidecar is online; 0: it is connected, or that is not
	// known. The caller adds it.
	Away relay.Millis `json:"away_since,omitempty"`
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
	g := Group{Locked: s.d.Config.Locked, Version: s.d.Settings.version(), Settings: s.settings(), Sources: s.Sources(),
		Bots: []Bot{}, LastStop: s.lastStop()}
	for _, m := range s.members() {
		g.Bots = append(g.Bots, Bot{Agent: m.Agent, Name: m.Name, Online: m.Agent == s.d.Config.Agent || s.d.Online[m.Agent]})
	}
	if n := len(s.d.Lines); n > 0 {
		newest := s.d.Lines[n-1]
		if s.continued(newest.Thread, max(s.now, newest.TS)+1) <= newest.TS {
			g.Depth = newest.Depth
		}
		g.Stopped = s.stoppedByPerson(&Line{Bot: unknownBot, TS: max(s.now, newest.TS)})
	}
	return g
}

// In reports whether the bot is in the chat, as far as is known.
func (s *State) In() bool { return s.isMember() }

// Peers are the sidecars of the chat, by agent. They are not to be changed.
func (s *State) Peers() []Peer { return s.members() }

// Mode says who answers a person's message that names no bot.
func (s *State) Mode() Mode { return s.settings().Answer }

// Queued is how many messages wait for a stage.
func (s *State) Queued() int { return len(s.d.Queue) }

// Heard reports whether this sidecar itself has heard a person's message, or knows it as a command.
func (s *State) Heard(id relay.MessageID) bool {
	d, l := s.d, cmp.Or(s.byID[id], &Line{})
	return l.of(d.Config.Agent) != nil || d.Todo[giveKey(id)] != nil || d.Turns[oneKey(id)] != nil ||
		d.Turns[commandKey(id)] != nil || s.seen(commandKey(id))
}

// Waiting is how many notices and answers the group is not shown yet.
func (s *State) Waiting() (n int) {
	for _, t := range s.d.Turns {
		if t.shows() {
			n++
		}
	}
	return n
}

// Asks is Command or Continue if a person's message steers the group, else Pass.
func (s *State) Asks(m *relay.Message) relay.Reason {
	if _, is := s.parse(m); is {
		return relay.Command
	}
	if s.isContinue(m) {
		return relay.Continue
	}
	return relay.Pass
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

// onItsWay is how long after it was sent a message is on its way to bots of which nothing else is known.
const onItsWay = 30_000

// whyText is what became of a message at each bot, and what people can do; without an id, of the last one that
// stopped.
func (s *State) whyText(id relay.MessageID, chinese bool) string {
	if last := s.lastStop(); id == "" && last != nil {
		id = last.MessageID
	}
	var lines, hints []string
	line := func(key string, args ...any) { lines = append(lines, say(key, args...).in(chinese)) }
	if id == "" {
		return say("nothing to continue").in(chinese)
	}
	l, members := cmp.Or(s.byID[id], &Line{}), s.members()
	if l.Bot != "" {
		line("about", labels(members, l.Bot))
	}
	verdicts := slices.Clone(l.Verdicts)
	for _, m := range members { // that have hardly had the time to say so
		if l.ID != "" && s.now-l.TS < onItsWay && m.Agent != l.Bot && l.of(m.Agent) == nil &&
			(s.d.Online[m.Agent] || m.Agent == s.d.Config.Agent) {
			verdicts = append(verdicts, Verdict{Agent: m.Agent})
		}
	}
	if len(verdicts) == 0 {
		line("no fate")
	}
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
		case v.Decision == nil:
			line("on its way", bot)
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
	id := e.Msg.ID()
	if i := slices.Index(t.d.Lines, t.byID[id]); i >= 0 { // what came after it does not count
		for _, l := range t.d.Lines[i:] {
			delete(t.byID, l.ID)
		}
		t.d.Lines = t.d.Lines[:i]
	}
	if e.Kind == Heard {
		why = relay.NotForMe
	}
	effects, _ := t.Apply(e)
	for _, e := range effects {
		switch e.Do {
		case Give, Claim:
			return relay.Pass, nil, false
		case Withhold, Stop, Deliver, Ask:
			if l := t.byID[id]; e.Decision == nil && l != nil {
				e.Decision = &policy.Decision{Depth: l.Depth}
			}
			return e.Reason, e.Decision, e.Do == Ask
		}
	}
	return why, nil, false
}
