package group

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"feishu-relay/relay"
)

// show is something that the group is to be shown once: a notice that bots stopped, or an answer. Each sidecar knows of
// it by the same records. The first of those that can write claims it and shows it; each of the others waits a second
// longer. What a sidecar had begun when it was killed it alone repeats, with the same key, which Feishu shows once.
type show struct {
	Key     string          `json:"key"`
	Act     Act             `json:"act"`
	Of      relay.MessageID `json:"of"`
	Thread  string          `json:"thread,omitempty"`
	Round   relay.Millis    `json:"round,omitempty"`
	Said    relay.Millis    `json:"said,omitempty"`
	Text    string          `json:"text,omitempty"` // of an answer
	Chinese bool            `json:"chinese,omitempty"`
	Since   relay.Millis    `json:"since"`           // when the turns began
	Try     int             `json:"try,omitempty"`   // how many sidecars could not show it
	Other   bool            `json:"other,omitempty"` // another sidecar has claimed it
	Over    bool            `json:"over,omitempty"`  // nobody has to show it any more
}

const (
	// showTurn is how long each sidecar has to begin.
	showTurn = relay.Millis(1000)
	// showGather is how long a notice waits for other bots at which its round stopped.
	showGather = relay.Millis(1000)
	// showLife is how long it is tried: as long as Feishu knows a key.
	showLife = hour
)

func (w *show) claim() string { return w.Key + "#" + strconv.Itoa(w.Try) }

// foldShow takes in something to be shown. Beyond maxWaiting the oldest is not.
func (s *State) foldShow(w *show) {
	d := s.d
	if len(d.Shows) >= maxWaiting {
		oldest := w
		for _, o := range d.Shows {
			if o.Since < oldest.Since || o.Since == oldest.Since && o.Key < oldest.Key {
				oldest = o
			}
		}
		delete(d.Shows, oldest.Key)
	}
	d.Shows[w.Key] = w
}

// foldNotice takes in that the group was shown something.
func (s *State) foldNotice(r *Record) {
	delete(s.d.Shows, r.Key)
	if r.Act != ActStop {
		return
	}
	st := s.d.Stops[r.Thread]
	if st == nil || r.Round > st.Round && st.Said < r.Round {
		st = &stopped{Round: r.Round, Said: r.Said, Of: r.Of, Sender: r.Sender, Reason: r.Reason}
		s.d.Stops[r.Thread] = st
		for _, bot := range r.Bots {
			st.At = append(st.At, stoppedAt{bot, r.Of, r.TS})
		}
	}
	if r.Round >= st.Round || r.Said >= st.Round {
		s.sameRound(st, r)
		st.Noticed = true
		delete(s.d.Shows, stopKey(r.Thread, st.Round))
	}
}

// showers are the sidecars whose turn it is to show something: those that are online and can write. Where none can,
// write is false, and it is only recorded.
func (s *State) showers() (agents []relay.AgentName, write bool) {
	var all []relay.AgentName
	for _, m := range s.members() {
		if m.Agent != s.cfg.Agent && !s.online[m.Agent] {
			continue
		}
		all = append(all, m.Agent)
		if m.CanWrite {
			agents = append(agents, m.Agent)
		}
	}
	if len(agents) > 0 {
		return agents, true
	}
	return all, false
}

// showDue is when it is this sidecar's turn; 0: another event comes first.
func (s *State) showDue(w *show) relay.Millis {
	agents, _ := s.showers()
	self := slices.Index(agents, s.cfg.Agent)
	if self < 0 || w.Other || s.d.Todo[w.claim()] != nil || s.d.Todo["show/"+w.claim()] != nil {
		return w.Since + showLife
	}
	turn := ((self-w.Try)%len(agents) + len(agents)) % len(agents)
	return w.Since + relay.Millis(turn)*showTurn
}

// turnToShow claims w in this sidecar's turn.
func (s *State) turnToShow(w *show) {
	over := s.now-w.Since >= showLife || w.Act == ActAnswer && w.Text == "" || w.Act == ActStop && s.cfg.Notice == "off"
	for _, key := range []string{w.Thread, everywhere} { // nobody has to let them go on any more
		over = over || w.Act == ActStop && s.d.Continued[key].At > w.Said
	}
	switch {
	case over:
		s.add(Record{Kind: kindShow, Key: w.Key, Show: &show{Over: true}})
	case s.showDue(w) <= s.now:
		s.do(Effect{Do: Claim, Key: w.claim()}, nil)
	}
}

// claimedShow shows w, if this sidecar has the claim.
func (s *State) claimedShow(w *show, holder relay.AgentName) {
	if holder != s.cfg.Agent {
		next := *w
		next.Other = true
		s.add(Record{Kind: kindShow, Key: w.Key, Show: &next})
		return
	}
	_, write := s.showers()
	e := Effect{Do: Reply, Key: "show/" + w.claim(), ID: w.Of, Text: s.shownText(w)}
	switch {
	case !write || !strings.HasPrefix(string(w.Of), "om_") || w.Try >= len(s.members()):
		s.showed(w, "") // nobody can
		return
	case w.Act == ActStop && s.cfg.Notice != "text":
		e.Do, e.Text = React, ""
	}
	s.do(e, nil)
}

// shownText is what the group is shown.
func (s *State) shownText(w *show) string {
	st := s.d.Stops[w.Thread]
	if w.Act != ActStop || st == nil {
		return w.Text
	}
	chinese, members := false, s.members()
	for i := s.after(w.Said) - 1; i >= 0; i-- {
		if o := s.d.Lines[i]; o.Bot == "" && o.Thread == w.Thread {
			chinese = o.Chinese
			break
		}
	}
	to := text2{list(labels(members, st.bots()), false), list(labels(members, st.bots()), true)}
	return say(chinese, "notice", labels(members, []relay.AgentName{st.Sender}), to, st.Reason)
}

// bots are those at which the round stopped.
func (st *stopped) bots() (out []relay.AgentName) {
	for _, x := range st.At {
		if !slices.Contains(out, x.Agent) {
			out = append(out, x.Agent)
		}
	}
	slices.Sort(out)
	return out
}

// didShow takes in how it went.
func (s *State) didShow(e *Effect, result Done) {
	for _, w := range s.d.Shows {
		if "show/"+w.claim() != e.Key {
			continue
		}
		if result.Failed {
			s.share(Record{Kind: KindFailed, Key: w.Key, Try: w.Try})
		} else {
			s.showed(w, result.Message)
		}
		return
	}
}

// showed tells the other sidecars that the group was shown w.
func (s *State) showed(w *show, id relay.MessageID) {
	r := Record{Kind: KindNotice, ID: "notice/" + w.Key, Key: w.Key, Act: w.Act, Of: w.Of, Thread: w.Thread, Round: w.Round,
		Said: w.Said, Text: s.shownText(w), Chinese: w.Chinese, Message: cmp.Or(id, relay.MessageID("notice:"+w.Key))}
	if st := s.d.Stops[w.Thread]; w.Act == ActStop && st != nil {
		r.Sender, r.Reason, r.Bots = st.Sender, st.Reason, st.bots()
	}
	s.share(r)
}
