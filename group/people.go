package group

import (
	"cmp"
	"slices"
	"strconv"

	"feishu-relay/internal/runes"
	"feishu-relay/relay"
)

// bounded copies the message of an event, without what is not for us.
func (s *State) bounded(e *Event) *relay.Message {
	m := *e.Msg
	m.SenderName = runes.Cut(m.SenderName, relay.MaxName)
	m.Mentions = m.Mentions[:min(len(m.Mentions), relay.MaxMentions)]
	e.Msg = &m
	if s.Gone(m.ID()) || s.Gone(EditOf(&m)) {
		e.Msg = blank(&m)
	}
	return e.Msg
}

// record adds a message to the lines and to the transcript.
func (s *State) record(l *Line, m *relay.Message) {
	depth := 0
	if l != nil {
		s.insert(l)
		depth = l.Depth
	}
	s.do(Effect{Do: Append, Key: "append/" + string(m.ID()), ID: m.ID(), Msg: m, Depth: depth})
}

// ignore ends an event that changes nothing.
func (s *State) ignore(e Effect) {
	s.changed = false
	s.effect(e)
}

// said records and publishes what this bot has sent.
func (s *State) said(e *Event) {
	m := s.bounded(e)
	id, of := m.ID(), EditOf(m)
	switch {
	case s.Gone(id), s.Gone(of):
		s.ignore(Effect{Do: Stop, ID: id, Reason: relay.Recalled})
		return
	case s.byID[id] != nil:
		s.ignore(Effect{Do: Stop, ID: id, Reason: relay.Duplicate})
		return
	}
	m.SenderAgentName = s.d.Config.Agent
	if m.TS <= 0 { // never before what the bot may answer, whatever the clocks of the others
		m.TS = s.now
		if n := len(s.d.Lines); n > 0 {
			m.TS = max(m.TS, min(s.d.Lines[n-1].TS+1, s.believed(s.d.Lines[n-1].TS+1)))
		}
	}
	var l *Line
	if of == "" {
		m.UserTS = s.spoke(m.ThreadID, s.believed(m.TS))
		l = s.lineOf(e)
	}
	s.setIn(Joined, s.believed(m.TS))
	s.record(l, m)
	s.do(Effect{Do: Publish, Key: "publish/" + string(id), ID: id, Msg: m})
}

// heard decides about a person's message that this bot received, or a bot's that comes as one.
func (s *State) heard(e *Event) {
	m := s.bounded(e)
	m.Role = cmp.Or(m.Role, relay.RoleUser)
	isPerson := m.Role == relay.RoleUser
	e.User = e.User && isPerson
	id := m.ID()
	l, known := s.byID[id], s.byID[id] != nil
	if !known {
		l = s.lineOf(e)
	}
	switch v := l.of(s.d.Config.Agent); {
	case s.Gone(id):
		s.ignore(Effect{Do: Withhold, ID: id, Reason: relay.Recalled})
		return
	case v != nil && v.Stopped != relay.Pass:
		s.ignore(Effect{Do: Withhold, ID: id, Reason: v.Stopped})
		return
	case v != nil, s.d.Todo[giveKey(id)] != nil: // the bot has it, or is being given it
		s.ignore(Effect{Do: Give, ID: id, Msg: m})
		return
	}
	s.setIn(Joined, s.believed(m.TS))
	if e.User && s.command(m, e.MayEdit) {
		s.effect(Effect{Do: Withhold, ID: id, Reason: relay.Command})
		return
	}
	if !known {
		s.record(l, m)
		switch cfg, key := &s.d.Config, "publish/"+string(id); {
		case !cfg.ShareMessages || !isPerson:
		case cfg.AsksMembership: // Feishu tells the other sidecars of it as well
			s.begin(turn{Key: key, Kind: turnPublish, Of: id, Msg: m})
		default:
			s.do(Effect{Do: Publish, Key: key, ID: id, Msg: m})
		}
	}
	set := s.settings()
	switch a, me := s.audience(l, &set), s.d.Config.Agent; {
	case e.User && s.isContinue(m):
		s.begin(turn{Key: commandKey(id), Kind: turnCommand, Of: id, Msg: m})
		s.effect(Effect{Do: Withhold, ID: id, Reason: relay.Continue})
		s.effect(Effect{Do: Stop, ID: id, Reason: relay.Continue})
	case set.Muted[me] != nil:
		s.withhold(l, relay.Muted)
	case slices.Contains(a.oneOf, me) && !slices.ContainsFunc(l.Verdicts, Verdict.delivered):
		bots := slices.DeleteFunc(a.oneOf, func(b relay.AgentName) bool { return set.Muted[b] != nil })
		s.begin(turn{Key: oneKey(id), Kind: turnOne, Of: id, Bots: bots, Msg: m})
		s.effect(Effect{Do: Hold, ID: id})
	case !s.isFor(a):
		s.withhold(l, relay.NotForMe)
	default:
		s.do(Effect{Do: Give, Key: giveKey(id), ID: id, Msg: m})
	}
}

func giveKey(id relay.MessageID) string { return "give/" + string(id) }

// withhold keeps a person's message from this bot.
func (s *State) withhold(l *Line, why relay.Reason) {
	if l != nil {
		s.effect(Effect{Do: Withhold, ID: l.ID, Reason: why})
		s.effect(Effect{Do: Stop, ID: l.ID, Reason: why})
		s.verdict(l.ID, l.Thread, Verdict{Stopped: why})
	}
}

// verdict shares what became of a message at this bot.
func (s *State) verdict(of relay.MessageID, thread string, v Verdict) {
	v.Agent, v.At = s.d.Config.Agent, s.now
	s.share(Record{Kind: KindVerdict, Of: of, Thread: thread, Verdict: &v})
}

// shared records a person's message that another sidecar heard.
func (s *State) shared(e *Event) {
	m := s.bounded(e)
	publish := "publish/" + string(m.ID())
	waits := s.d.Turns[publish] != nil
	delete(s.d.Turns, publish)
	s.enter(&arrival{ID: m.ID(), Msg: m, Names: e.Names, At: s.now, Shared: true})
	s.changed = s.changed || waits
}

// blank is a message without what it says, and without a type.
func blank(m *relay.Message) *relay.Message {
	out := *m
	out.Content, out.MsgType, out.Mentions, out.Metadata = "", "", nil, relay.Metadata{"chat_type": encode("group")}
	if of := EditOf(m); of != "" {
		out.Metadata[MetaEditOf] = encode(of)
	}
	return &out
}

func nr(n uint64) string { return strconv.FormatUint(n, 10) }
