package group

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"feishu-relay/internal/runes"
	"feishu-relay/policy"
	"feishu-relay/relay"
)

// command begins a person's message that is a command, and reports whether it is one.
func (s *State) command(m *relay.Message, mayEdit bool) bool {
	a, is := s.parse(m)
	if !is || slices.Contains(s.d.Seen, commandKey(m.ID())) {
		return is
	}
	t := turn{Key: commandKey(m.ID()), Kind: turnCommand, Of: m.ID(), MayEdit: mayEdit, Since: s.d.Joined + joinTime}
	if !mayEdit && a.mistake == nil && !slices.Contains(openVerbs, a.verb) {
		t.Since = max(t.Since, s.now+refuseTime)
	}
	s.begin(t, m)
	return true
}

func commandKey(id relay.MessageID) string { return "command/" + string(id) }

// openVerbs are the commands that everybody may give.
var openVerbs = []Verb{VerbStatus, VerbHelp, VerbWhy, VerbContinue}

// execute carries out a person's command, or a person's word that lets bots go on.
func (s *State) execute(t *turn) {
	if slices.Contains(s.d.Seen, t.Key) {
		return
	}
	m := s.d.Texts[t.Of].Msg
	r := Record{Kind: KindCommand, ID: t.Key, Act: ActContinue, Of: t.Of, Message: t.Of, Thread: m.ThreadID,
		By: cmp.Or(m.SenderName, string(m.SenderID), "user"), Bots: t.Bots,
		Text: runes.Cut(m.Content, maxShownText), TS: s.believed(m.TS)}
	if !t.Word {
		a, _ := s.parse(m)
		r.Bots, r.Chinese, r.Act = a.bots, a.chinese, ActAnswer
		if s.now-r.TS <= relay.Millis(s.cfg.MaxAge.Milliseconds()) { // else it is too late, and not unseen
			r.Act, r.Set, r.Answer = s.carryOut(&a, m, t.MayEdit, r.TS)
		}
	}
	s.at(r.Set, r.TS, r.ID, false)
	s.share(r)
	s.follow(&r)
}

// carryOut is what a command does: its act, what it changes, and its answer.
func (s *State) carryOut(a *asked, m *relay.Message, mayEdit bool, at relay.Millis) (Act, Changes, string) {
	c, p, wrong := s.meant(a, at)
	act := ActSet
	switch {
	case a.mistake != nil:
		wrong = a.mistake
	case a.verb == VerbHelp:
		return ActAnswer, nil, helpText(s.cfg.Commands, a.chinese)
	case a.verb == VerbStatus:
		return ActAnswer, nil, s.statusText(a.chinese)
	case a.verb == VerbWhy:
		return ActAnswer, nil, s.whyText(m.ParentID, a.chinese)
	case wrong != nil:
	case s.cfg.Locked:
		wrong = mistakeOf("locked")
	case a.verb == VerbContinue:
		act, wrong = ActContinue, s.cannotContinue(m.ThreadID, at, a.bots)
	case !mayEdit && (s.cfg.SteerBy == "members" || s.cfg.SteerBy == "admins"):
		wrong = mistakeOf(s.cfg.SteerBy)
	case !mayEdit:
		wrong = mistakeOf("list")
	case a.verb == VerbStop:
		act = ActStop
	}
	if wrong != nil {
		return ActAnswer, nil, wrong.text(a.chinese)
	}
	return act, c, p.text(a.chinese)
}

// bounds are the numbers that a group takes for a verb.
func (s *State) bounds(a *asked) (low, high int) {
	set, _ := s.settings()
	high = maxNumber
	switch {
	case a.verb == VerbLimit:
		if low = 1; s.cfg.MaxDepth > 0 {
			high = s.cfg.MaxDepth
		}
	case a.verb == VerbThreshold:
		high = cmp.Or(a.limit, set.Limit)
	case a.verb == VerbBudget && s.operator > 0:
		high = s.operator
	}
	return low, high
}

// meant is what a command given at a time changes, and how the group is told; the end of a pause counts from then.
func (s *State) meant(a *asked, at relay.Millis) (c Changes, p phrase, wrong *mistake) {
	set, _ := s.settings()
	c = Changes{}
	tell := func(key string, args ...any) { p = append(p, mistake{key, args}) }
	end, until := Until{}, moment{}
	if ends := at + relay.Millis(a.pause.Milliseconds()); a.pause > 0 {
		end.Until, until = &ends, s.moment(ends)
	}
	who, are := labels(s.members(), a.bots), text2{"is", ""}
	if len(a.bots) > 1 {
		are.en = "are"
	}
	switch a.verb {
	case VerbPause:
		c.set(keyPaused, end)
		if tell("paused"); a.pause > 0 {
			p = nil
			tell("paused until", until)
		}
	case VerbResume:
		c.unset(keyPaused)
		tell("resumed")
	case VerbMute, VerbUnmute:
		for _, bot := range a.bots {
			if c.unset(keyMuted + string(bot)); a.verb == VerbMute {
				c.set(keyMuted+string(bot), end)
			}
		}
		switch {
		case a.verb == VerbUnmute:
			tell("unmuted", who, are)
		case a.pause > 0:
			tell("muted until", who, are, until)
		default:
			tell("muted", who, are)
		}
	case VerbAnswer:
		c.set(keyAnswer, a.mode)
		set.Answer = a.mode
		if len(a.bots) > 0 {
			c.set(keyDefaultBot, a.bots[0])
			set.DefaultBot = a.bots[0]
		}
		p = s.answers(&set)
	case VerbLimit, VerbThreshold, VerbBudget:
		low, high := s.bounds(a)
		switch {
		case a.n < 0 && a.noNumber == "":
			return nil, nil, mistakeOf("no number", a.verb, low, high)
		case a.n < 0:
			return nil, nil, mistakeOf("bad number", a.verb, low, high, a.noNumber)
		case a.n < low || a.n > high:
			return nil, nil, mistakeOf("bad number", a.verb, low, high, strconv.Itoa(a.n))
		}
		c.set(string(a.verb), a.n)
		switch {
		case a.verb == VerbBudget && a.n > 0:
			tell("budget", a.n)
		case a.verb == VerbBudget && high < maxNumber:
			tell("operator", high)
		case a.verb == VerbBudget:
			tell("no budget")
		case a.verb == VerbThreshold && a.n == 0:
			tell("threshold 0")
		default:
			tell(string(a.verb), a.n)
		}
		if a.verb == VerbThreshold && !set.Judge {
			tell("judge is off")
		}
		if a.verb == VerbLimit && a.n <= set.Threshold {
			c.set(keyThreshold, a.n)
			tell("threshold too", a.n)
		}
	case VerbJudge:
		c.set(keyJudge, a.on)
		if tell("judge off", set.Limit); a.on {
			p = nil
			tell("judge on", set.Threshold)
		}
	case VerbStop:
		c.set(keyStopped, true)
		tell("stop")
	case VerbContinue:
		if set.Paused.Holds(s.now) { // what is held stays so
			return nil, nil, mistakeOf("still paused")
		}
		switch len(a.bots) {
		case 0:
			tell("all go on")
		case 1:
			tell("one goes on", who)
		default:
			tell("some go on", who)
		}
	case VerbForget:
		for _, key := range settingKeys {
			c.unset(key)
		}
		for key := range s.d.Settings {
			if strings.HasPrefix(key, keyMuted) {
				c.unset(key)
			}
		}
		tell("forget")
	}
	return c, p, nil
}

// stopped is the last round of a conversation that stopped.
type stopped struct {
	Round   relay.Millis    `json:"round"`
	Said    relay.Millis    `json:"said"` // of the first message that stopped
	Of      relay.MessageID `json:"of"`
	Sender  relay.AgentName `json:"sender"`
	Reason  relay.Reason    `json:"reason"`
	At      []stoppedAt     `json:"at"`
	Noticed bool            `json:"noticed,omitempty"` // the group is shown it, or was
}

// stoppedAt is a message of the round that stopped at a bot.
type stoppedAt struct {
	Agent relay.AgentName `json:"agent"`
	Of    relay.MessageID `json:"of"`
	At    relay.Millis    `json:"at"`
}

const (
	// maxStoppedAt is how many stops of one round are known; further ones cannot make a word a continue.
	maxStoppedAt = 200
	// hour is for how long the group is not shown again that its budget is used up.
	hour = 60 * minute
)

// releasable reports whether what stopped for a reason is shown, and can be released.
func releasable(why relay.Reason) bool { return why == relay.MaxDepth || why == relay.Budget }

// foldStop takes in that a message stopped. The first of its round is shown in the group.
func (s *State) foldStop(r *Record) {
	d, st := s.d, s.d.Stops[r.Thread]
	if st != nil && r.Round < st.Round && r.Said < st.Round {
		return // of an earlier round
	}
	if st == nil || r.Round > st.Round && st.Said < r.Round {
		st = &stopped{Round: r.Round, Said: r.Said, Of: r.Of, Sender: r.Sender, Reason: r.Verdict.Stopped}
		d.Stops[r.Thread] = st
		bound(d.Stops, func(st *stopped) relay.Millis { return st.Round })
	}
	s.sameRound(st, r)
	if len(st.At) < maxStoppedAt {
		st.At = append(st.At, stoppedAt{r.Verdict.Agent, r.Of, r.Verdict.At})
	}
	if st.Noticed {
		return
	}
	if r.Verdict.Stopped == relay.Budget {
		if d.Budgeted > 0 && r.Verdict.At-d.Budgeted < hour {
			return
		}
		d.Budgeted = r.Verdict.At
	}
	st.Noticed = true
	s.foldTurn(&turn{Key: stopKey(r.Thread, st.Round), Kind: turnStop, Of: st.Of, Thread: r.Thread, Round: st.Round,
		Said: st.Said, Since: r.Local + gatherTime, Born: r.Local}, nil)
}

func stopKey(thread string, round relay.Millis) string {
	return "stop/" + thread + "/" + nr(uint64(round))
}

// sameRound joins a stop that another sidecar takes for one of another round, because it did not know yet, or did,
// that a person has spoken in between.
func (s *State) sameRound(st *stopped, r *Record) {
	if r.Round <= st.Round {
		return
	}
	was, is := stopKey(r.Thread, st.Round), stopKey(r.Thread, r.Round)
	st.Round = r.Round
	if t := s.d.Turns[was]; t != nil {
		delete(s.d.Turns, was)
		t.Key, t.Round = is, r.Round
		s.d.Turns[is] = t
	}
}

// foldNotice takes in that the group was shown something.
func (s *State) foldNotice(r *Record) {
	s.foldTurn(&turn{Key: r.Key, Over: true}, nil)
	for key, e := range s.d.Todo { // a sidecar that was killed does not show it again
		if strings.HasPrefix(key, "show/"+r.Key+"#") {
			delete(s.d.Todo, key)
			s.drop(e.ID)
		}
	}
	st := s.d.Stops[r.Thread]
	switch {
	case r.Act != ActStop:
		return
	case st == nil || r.Round > st.Round && st.Said < r.Round:
		st = &stopped{Round: r.Round, Said: r.Said, Of: r.Of, Sender: r.Sender, Reason: r.Reason}
		s.d.Stops[r.Thread] = st
		bound(s.d.Stops, func(st *stopped) relay.Millis { return st.Round })
		for _, bot := range r.Bots {
			st.At = append(st.At, stoppedAt{bot, r.Of, r.TS})
		}
	case r.Round < st.Round && r.Said < st.Round:
		return
	}
	s.sameRound(st, r)
	st.Noticed = true
	s.foldTurn(&turn{Key: stopKey(r.Thread, st.Round), Over: true}, nil)
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

// stillStopped are the bots at which something stopped that a continue at a time can release, and those that are
// muted. Only the named bots count, if there are any.
func (s *State) stillStopped(thread string, at relay.Millis, named []relay.AgentName) (bots, muted []relay.AgentName) {
	st := s.d.Stops[thread]
	if st == nil || st.Said >= at || s.spoke(thread, at-1) > st.Said {
		return nil, nil
	}
	set, _ := s.settings()
	for _, x := range st.At {
		list := &bots
		if set.Muted[x.Agent].Holds(s.now) {
			list = &muted
		}
		if (len(named) == 0 || slices.Contains(named, x.Agent)) && s.fresh(at, x.At) && !s.gone[x.Of] &&
			!slices.Contains(*list, x.Agent) {
			*list = append(*list, x.Agent)
		}
	}
	return bots, muted
}

func (s *State) fresh(at, stopped relay.Millis) bool {
	return at-stopped <= relay.Millis(s.cfg.Window.Milliseconds())
}

// continueWord reports whether a person's message lets bots go on, and which; none: all. It does so while the group is
// shown that bots stopped, and something can be released; else it is an ordinary message.
func (s *State) continueWord(m *relay.Message) (bots []relay.AgentName, is bool) {
	if bots, is = isContinue(s.spelledOut(m), s.members()); !is {
		return nil, false
	}
	set, _ := s.settings()
	st := s.d.Stops[m.ThreadID]
	if st == nil || !st.Noticed || s.cfg.Notice == "off" || set.Paused.Holds(s.now) {
		return nil, false
	}
	at, _ := s.stillStopped(m.ThreadID, s.believed(m.TS), bots)
	return bots, len(at) > 0
}

// cannotContinue says why bots cannot go on; nil: they can, also where only a person's stop is ended.
func (s *State) cannotContinue(thread string, at relay.Millis, named []relay.AgentName) *mistake {
	stop := s.d.Settings.since(keyStopped)
	for _, c := range s.d.Continued {
		if c.At > stop {
			stop = 0
		}
	}
	bots, muted := s.stillStopped(thread, at, named)
	switch {
	case stop > 0 || len(bots) > 0:
		return nil
	case len(muted) == 1:
		return mistakeOf("one still muted", labels(s.members(), muted))
	case len(muted) > 1:
		return mistakeOf("some still muted", labels(s.members(), muted))
	}
	return mistakeOf("nothing to continue")
}

// goneOn is a continue.
type goneOn struct {
	At   relay.Millis      `json:"at"`
	Bots []relay.AgentName `json:"bots,omitempty"` // none: all
}

// has reports whether it is for a bot.
func (c goneOn) has(agent relay.AgentName) bool {
	return len(c.Bots) == 0 || slices.Contains(c.Bots, agent)
}

const (
	// maxHeld and maxHeldBytes bound the messages that can be released; beyond it the one stopped first cannot.
	maxHeld      = 500
	maxHeldBytes = 8 << 20
)

// hold keeps a message that stopped at this bot, so that it can be released.
func (s *State) hold(id relay.MessageID, m *relay.Message) {
	d, bytes := s.d, 0
	d.Held = append(d.Held, id)
	s.keep(id, m)
	for _, id := range d.Held {
		bytes += len(d.Texts[id].Msg.Content)
	}
	for len(d.Held) > maxHeld || bytes > maxHeldBytes {
		bytes -= len(d.Texts[d.Held[0]].Msg.Content)
		s.drop(d.Held[0])
		d.Held = d.Held[1:]
	}
}

// unhold ends that a message can be released.
func (s *State) unhold(id relay.MessageID) {
	if slices.Contains(s.d.Held, id) {
		s.add(Record{Kind: kindDrop, Of: id})
	}
}

// letGo is the decision on what a person releases.
func letGo() *policy.Decision {
	return &policy.Decision{Allow: true, Tier: policy.TierReleased, Depth: 1, Reason: "a person let the bots go on"}
}

// release gives the bot what stopped in the last round of a conversation. What it does not release it forgets: a later
// continue is about a later round.
func (s *State) release(r *Record) {
	set, _ := s.settings()
	mine := goneOn{Bots: r.Bots}.has(s.cfg.Agent) && !set.Paused.Holds(s.now) && !set.Muted[s.cfg.Agent].Holds(s.now)
	for _, id := range slices.Clone(s.d.Held) {
		l := s.byID[id]
		if l != nil && (r.Thread != everywhere && r.Thread != l.Thread || l.TS >= r.TS) {
			continue
		}
		if l != nil && mine && s.spoke(l.Thread, r.TS-1) <= l.TS && s.fresh(r.TS, l.of(s.cfg.Agent).At) && !l.Recalled {
			s.pass(id, nil, letGo())
		}
		s.unhold(id)
	}
}

// released reports whether the bots went on while a message was on its way.
func (s *State) released(a *arrival) bool {
	l := s.byID[a.ID]
	for _, key := range []string{l.Thread, everywhere} {
		c := s.d.Continued[key]
		if c.At > l.TS && c.has(s.cfg.Agent) && s.spoke(l.Thread, c.At-1) <= l.TS {
			return true
		}
	}
	return false
}

// changed carries out a request over the API.
func (s *State) changed(e Changed) {
	var (
		c       Changes
		version string
		wrong   error
	)
	id := "api/" + string(s.cfg.Agent) + "/" + nr(s.d.Nr)
	r := Record{Kind: KindCommand, ID: id, Message: relay.MessageID("notice:" + id), Act: ActSet, By: "api", Bots: e.Bots,
		Thread: everywhere, TS: s.now}
	switch e.Verb {
	case "":
		c, version, wrong = s.patch(e.Body)
	default:
		var m *mistake
		if c, _, m = s.meant(&asked{verb: e.Verb, bots: e.Bots}, s.now); m != nil {
			wrong = relay.Errorf(relay.CodeInvalidRequest, "%s", m.text(false))
		}
		if e.Verb == VerbStop {
			r.Act = ActStop
		}
		if e.Verb == VerbContinue {
			r.Act = ActContinue
			if n := len(s.d.Lines); n > 0 { // whatever the clocks of the others
				r.TS = max(r.TS, s.d.Lines[n-1].TS+1)
			}
		}
	}
	switch is := s.d.Settings.version(); {
	case !s.isMember():
		wrong = relay.Errorf(relay.CodeUnknownGroup, "this bot is not in this group; GET /v1/groups lists its groups")
	case s.cfg.Locked:
		wrong = relay.Errorf(relay.CodeLocked, "%s", say(false, "locked"))
	case wrong == nil && version != "" && version != is:
		wrong = relay.Errorf(relay.CodeConflict,
			"version: the group has changed since; its version is %s now, read it again", is)
	}
	if wrong != nil {
		s.effect(Effect{Do: Respond, Call: e.Call, Err: wrong})
		return
	}
	if len(c) > 0 || r.Act == ActContinue {
		r.Set = s.at(c, s.now, r.ID, true)
		s.share(r)
		s.follow(&r)
	}
	s.effect(Effect{Do: Respond, Call: e.Call})
}
