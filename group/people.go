package group

import (
	"cmp"
	"slices"
	"strconv"

	"feishu-relay/internal/runes"
	"feishu-relay/relay"
)

// said records and publishes what this bot has sent.
func (s *State) said(e *relay.Message) {
	m := bounded(e)
	m.SenderAgentName = s.cfg.Agent
	of := editOf(m)
	why := relay.Pass
	switch {
	case s.gone[m.ID()], s.gone[of]:
		why = relay.Recalled
	case s.byID[m.ID()] != nil:
		why = relay.Duplicate
	}
	if why != relay.Pass {
		s.effect(Effect{Do: Stop, ID: m.ID(), Reason: why})
		return
	}
	if m.TS <= 0 { // never before what the bot may answer, whatever the clocks of the others
		m.TS = s.now
		if n := len(s.d.Lines); n > 0 {
			m.TS = max(m.TS, min(s.d.Lines[n-1].TS+1, s.believed(s.d.Lines[n-1].TS+1)))
		}
	}
	r := Record{Kind: kindLine, Msg: m, Do: []Do{Append, Publish}}
	if of == "" {
		ts := s.believed(m.TS)
		m.UserTS = s.spoke(m.ThreadID, ts)
		l := s.lineOf(m, ts)
		l.Depth, l.Round = s.depth(&l)
		r.Line = &l
	} else {
		s.effect(Effect{Do: Retext, ID: of, Text: m.Content})
	}
	s.add(r)
}

// heard decides about a person's message that this bot received.
func (s *State) heard(e *Heard) {
	m := bounded(&e.Msg)
	m.Role = relay.RoleUser
	id := m.ID()
	l := s.lineOf(m, s.believed(m.TS))
	if known := s.byID[id]; known != nil {
		l = *known
		if v := known.of(s.cfg.Agent); v != nil { // it was decided
			again := Effect{Do: Give, ID: id, Msg: m}
			if v.Stopped != relay.Pass {
				again = Effect{Do: Withhold, ID: id, Reason: v.Stopped}
			}
			s.effect(again)
			return
		}
	}
	if s.gone[id] {
		s.effect(Effect{Do: Withhold, ID: id, Reason: relay.Recalled})
		return
	}
	if e.User && s.command(m, e.MayEdit) {
		s.effect(Effect{Do: Withhold, ID: id, Reason: relay.Command})
		return
	}
	bots, goOn := s.continueWord(m)
	goOn = goOn && e.User
	if s.byID[id] == nil {
		s.add(Record{Kind: kindLine, Line: &l, Msg: m, Do: []Do{Append}})
		if s.cfg.ShareMessages {
			s.begin(turn{Key: "publish/" + string(id), Kind: turnPublish, Of: id}, m)
		}
	}
	set := s.settings()
	switch a := s.audience(&l, &set); {
	case goOn:
		s.begin(turn{Key: commandKey(id), Kind: turnCommand, Of: id, Bots: bots, Word: true}, m)
		s.effect(Effect{Do: Withhold, ID: id, Reason: relay.Continue})
	case set.Muted[s.cfg.Agent] != nil:
		s.withhold(&l, relay.Muted)
	case len(a.oneOf) > 0:
		bots := slices.DeleteFunc(a.oneOf, func(b relay.AgentName) bool { return set.Muted[b] != nil })
		known := cmp.Or(s.byID[id], &l)
		if slices.ContainsFunc(known.Verdicts, func(v Verdict) bool { return v.delivered() }) {
			s.withhold(&l, relay.NotForMe) // another bot has it
		} else {
			s.begin(turn{Key: oneKey(id), Kind: turnOne, Of: id, Bots: bots}, m)
		}
	case !s.isFor(a):
		s.withhold(&l, relay.NotForMe)
	default:
		s.do(Effect{Do: Give, Key: "give/" + string(id), ID: id}, m)
	}
}

// withhold keeps a person's message from this bot.
func (s *State) withhold(l *Line, why relay.Reason) {
	if l == nil {
		return
	}
	s.effect(Effect{Do: Withhold, ID: l.ID, Reason: why})
	s.share(Record{Kind: KindVerdict, Of: l.ID, Thread: l.Thread,
		Verdict: &Verdict{Agent: s.cfg.Agent, At: s.now, Stopped: why}})
}

// shared records a person's message that another sidecar heard.
func (s *State) shared(e *relay.Message) {
	m := bounded(e)
	id := m.ID()
	s.over("publish/" + string(id))
	why := relay.Pass
	switch {
	case m.Role != relay.RoleUser:
		why = relay.Malformed
	case !s.isMember():
		why = relay.NotAMember
	case s.byID[id] != nil:
		why = relay.Duplicate
	}
	if why != relay.Pass {
		s.effect(Effect{Do: Stop, ID: id, Reason: why})
		return
	}
	l := s.lineOf(m, s.believed(m.TS))
	s.add(Record{Kind: kindLine, Line: &l, Msg: m, Do: []Do{Append}})
}

// recalled takes in that a message was recalled, which several sidecars may hear.
func (s *State) recalled(id relay.MessageID) {
	if s.gone[id] {
		return
	}
	s.add(Record{Kind: KindRecall, Of: id})
	s.forget(id)
	s.begin(turn{Key: "recall/" + string(id), Kind: turnRecall, Of: id}, nil)
}

// forget takes the text of a recalled message away.
func (s *State) forget(id relay.MessageID) {
	s.do(Effect{Do: Redact, Key: "redact/" + string(id), ID: id}, nil)
	if slices.Contains(s.d.Held, id) {
		s.add(Record{Kind: kindDrop, Of: id})
	}
	if s.d.Turns[oneKey(id)] != nil {
		s.withhold(s.byID[id], relay.Recalled)
	}
	s.over(commandKey(id))
	s.effect(Effect{Do: Review})
}

// edited shares the new text of a message of this bot.
func (s *State) edited(e Edited) {
	l := s.byID[e.ID]
	if l == nil || l.Bot != s.cfg.Agent || l.Recalled {
		return
	}
	r := Record{Kind: KindEdit, ID: "edit/" + string(e.ID) + "/" + nr(s.d.Nr), Of: e.ID, Thread: l.Thread,
		Agent: s.cfg.Agent, Text: runes.Cut(e.Text, maxEditText), Said: l.TS}
	s.carry(r)
}

// appendEdit records the new text of a message. All sidecars give it the same id.
func (s *State) appendEdit(r *Record) {
	if s.gone[r.Of] {
		return
	}
	id := relay.MessageID(r.ID)
	m := &relay.Message{RelayMsgID: id, MessageID: id, SenderAgentName: r.Agent, ThreadID: r.Thread, Content: r.Text,
		MsgType: "text", TS: r.Said, Role: relay.RoleAssistant, Metadata: relay.Metadata{metaEditOf: encode(r.Of)}}
	s.do(Effect{Do: Append, Key: "append/" + r.ID, ID: id}, m)
}

// bounded is a copy of a message from outside, without what is not for us.
func bounded(m *relay.Message) *relay.Message {
	out := *m
	out.SenderName = runes.Cut(out.SenderName, relay.MaxName)
	out.Mentions = out.Mentions[:min(len(out.Mentions), relay.MaxMentions)]
	return &out
}

// blank is a message without what it says.
func blank(m *relay.Message) *relay.Message {
	out := *m
	out.Content, out.Mentions, out.Metadata = "", nil, relay.Metadata{"chat_type": encode("group")}
	if of := editOf(m); of != "" {
		out.Metadata[metaEditOf] = encode(of)
	}
	return &out
}

func withText(m *relay.Message, text string) *relay.Message {
	out := *m
	out.Content = text
	return &out
}

func nr(n uint64) string { return strconv.FormatUint(n, 10) }
