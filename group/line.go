package group

import (
	"cmp"
	"slices"

	"feishu-relay/mention"
	"feishu-relay/relay"
)

// Line is a message of the chat without its text.
type Line struct {
	ID     relay.MessageID `json:"id"`
	Bot    relay.AgentName `json:"bot,omitempty"`    // who said it; "": a person
	Person string          `json:"person,omitempty"` // the person's name; "": not known
	User   relay.OpenID    `json:"user,omitempty"`   // the person's id, as the app knows it that heard the message
	Han    bool            `json:"han,omitempty"`    // a person's, in Chinese
	TS     relay.Millis    `json:"ts"`
	Took   relay.Millis    `json:"took,omitempty"`    // from TS to when its text was final
	UserTS relay.Millis    `json:"user_ts,omitempty"` // when a person last spoke, as far as the bot knew
	Parent relay.MessageID `json:"parent,omitempty"`
	Root   relay.MessageID `json:"root,omitempty"`
	Thread string          `json:"thread,omitempty"`
	PartOf relay.MessageID `json:"part_of,omitempty"` // the first message of a send of which this is a later piece
	Named  Names           `json:"named,omitzero"`

	// These are known once the message is recorded.
	Nr       uint64       `json:"nr"`              // counts the lines as they came
	Round    relay.Millis `json:"round,omitempty"` // when its round began
	Depth    int          `json:"depth,omitempty"` // 0: a person's
	Recalled bool         `json:"recalled,omitempty"`
	// Edits are the ids of the newest edits of it that came, at most maxEdits, the newest at the end.
	Edits []relay.MessageID `json:"edits,omitempty"`
	// ShownWith is the message before which this one stood as context for this bot.
	ShownWith relay.MessageID `json:"shown_with,omitempty"`
	Verdicts  []Verdict       `json:"verdicts,omitempty"` // one for each agent, at most maxVerdicts
}

// Names are who a message names.
type Names struct {
	Bots   []relay.AgentName `json:"bots,omitempty"` // with or without a sidecar here, at most maxNamed
	All    bool              `json:"all,omitempty"`  // everybody
	Others bool              `json:"others,omitempty"`
}

func (n Names) any() bool { return len(n.Bots) > 0 || n.All || n.Others }

const (
	// maxLines is how many messages of the chat are known. Beyond it the oldest are forgotten: depth counts "at
	// least", and the audience of a reply to one of them is not known.
	maxLines = 4096
	// maxVerdicts is how many agents have a verdict on one message; those of more agents are dropped.
	maxVerdicts = 64
	// maxNamed is how many bots one message names; further ones are not named.
	maxNamed = 64
	// maxEdits is how many edits of a message are known; one that comes again after more others counts as new.
	maxEdits = 20
	// maxEarly is how many verdicts are kept whose message has not come; beyond it all are forgotten.
	maxEarly = 500
)

func (v Verdict) delivered() bool { return v.Delivered != 0 }

// of is the verdict of an agent, nil if there is none.
func (l *Line) of(agent relay.AgentName) *Verdict {
	if i := slices.IndexFunc(l.Verdicts, func(v Verdict) bool { return v.Agent == agent }); i >= 0 {
		return &l.Verdicts[i]
	}
	return nil
}

// judge adds a verdict. Of two of one agent the newer fields count, and a delivery is not undone.
func (l *Line) judge(v Verdict) {
	was := l.of(v.Agent)
	if was == nil {
		if len(l.Verdicts) < maxVerdicts {
			l.Verdicts = append(l.Verdicts, v)
		}
		return
	}
	if v.At < was.At {
		v, *was = *was, v
	}
	if passed := v.Decision != nil && v.Decision.Allow; v.Stopped == "" && !passed {
		v.Stopped, v.Detail = was.Stopped, was.Detail
	}
	v.Decision = cmp.Or(v.Decision, was.Decision)
	v.Delivered = cmp.Or(v.Delivered, was.Delivered)
	v.Door = cmp.Or(v.Door, was.Door)
	if v.delivered() {
		v.Stopped, v.Detail = "", ""
	}
	*was = v
}

// lineOf is the message of an event as a line.
func (s *State) lineOf(e *Event) *Line {
	m := e.Msg
	l := &Line{ID: m.ID(), TS: s.believed(m.TS), Took: s.believed(m.Final()) - s.believed(m.TS), UserTS: m.UserTS,
		Parent: m.ParentID, Root: m.RootID, Thread: m.ThreadID, Named: e.Names,
		PartOf: relay.MessageID(m.Metadata.Text(MetaPartOf))}
	if m.Role == relay.RoleUser {
		l.Person, l.User, l.Han = m.SenderName, m.SenderID, HasHan(m.Content)
	} else {
		l.Bot = cmp.Or(m.SenderAgentName, relay.AgentName(m.SenderBotOpenID), unknownBot)
		l.Depth, l.Round = s.depth(l)
	}
	return l
}

// isBy reports whether two messages are of one person, as far as is known.
func (l *Line) isBy(o *Line) bool {
	return l.Bot == "" && o.Bot == "" && (l.User != "" && l.User == o.User || l.Person != "" && l.Person == o.Person)
}

// NamesOf is whom a message names, by a directory of the bots that are known.
func NamesOf(d *mention.Directory, m *relay.Message) (n Names) {
	refs := make([]mention.Ref, len(m.Mentions))
	for i, x := range m.Mentions {
		refs[i] = mention.Ref{Key: x.Key, Name: x.Name, OpenID: string(x.OpenID), AgentName: string(x.AgentName)}
		n.Others = n.Others || x.AgentName == "" && x.OpenID != ""
	}
	found := d.Find(mention.Text{Content: m.Content, MsgType: m.MsgType, Refs: refs})
	n.All = found.All
	for _, agent := range found.Agents[:min(len(found.Agents), maxNamed)] {
		n.Bots = append(n.Bots, relay.AgentName(agent))
	}
	return n
}

// insert adds a line in the order of time; of equal times the later one is last.
func (s *State) insert(l *Line) {
	d := s.d
	l.Recalled = l.Recalled || s.Gone(l.ID)
	for _, v := range d.Early[l.ID] {
		l.judge(v)
	}
	delete(d.Early, l.ID)
	d.Nr++
	l.Nr = d.Nr
	at := s.after(l.TS)
	d.Lines = slices.Insert(d.Lines, at, l)
	s.byID[l.ID] = l
	for len(d.Lines) > maxLines {
		oldest := d.Lines[0]
		d.Lines[0] = nil
		d.Lines = d.Lines[1:]
		delete(s.byID, oldest.ID)
	}
}

// after is the index behind the lines up to a time.
func (s *State) after(ts relay.Millis) int {
	at, _ := slices.BinarySearchFunc(s.d.Lines, ts, func(l *Line, ts relay.Millis) int {
		if l.TS <= ts {
			return -1
		}
		return 1
	})
	return at
}

const (
	minute = relay.Millis(60_000)
	hour   = 60 * minute
)

// hourly is how many messages bots have said in the hour up to a time, as far as the lines are known.
func (s *State) hourly(ts relay.Millis) (n int) {
	for _, l := range s.d.Lines[s.after(ts-hour):s.after(ts)] {
		if l.Bot != "" {
			n++
		}
	}
	return n
}
