package group

import (
	"cmp"
	"maps"
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
	if !is || s.seen(commandKey(m.ID())) {
		return is
	}
	t := turn{Key: commandKey(m.ID()), Kind: turnCommand, Of: m.ID(), Msg: m, MayEdit: mayEdit,
		Since: s.d.JoinedAt + joinTime}
	if !mayEdit && a.mistake == none && a.verb.row().act != ActAnswer && a.verb != VerbContinue { // not for everybody
		t.Since = max(t.Since, s.now+refuseTime)
	}
	s.begin(t)
	return true
}

func commandKey(id relay.MessageID) string { return "command/" + string(id) }

// execute carries out a person's command, or a person's word that lets bots go on.
func (s *State) execute(t *turn) {
	if s.seen(t.Key) {
		return
	}
	m := t.Msg
	r := Record{Kind: KindCommand, ID: t.Key, Act: ActContinue, Of: t.Of, Message: t.Of, Thread: m.ThreadID,
		By: cmp.Or(m.SenderName, string(m.SenderID), "user"), Text: runes.Cut(m.Content, maxShownText),
		TS: s.believed(m.TS)}
	if a, is := s.parse(m); is {
		r.Bots, r.Act = a.bots, ActAnswer
		if !s.isOld(r.TS, s.now) { // else it is too late, and not unseen
			c, told, wrong := s.meant(&a, m.ParentID, r.TS)
			if wrong = cmp.Or(a.mistake, wrong, s.refusal(&a, m.ThreadID, t.MayEdit, r.TS)); wrong == none {
				r.Act, r.Set = a.verb.row().act, c
			}
			r.Answer = cmp.Or(wrong, told).in(a.chinese)
		}
	} else {
		r.Bots, _ = isContinue(s.spelledOut(m), s.members())
	}
	s.at(r.Set, r.TS, r.ID, false)
	s.share(r)
}

// refusal is why somebody's command is not carried out.
func (s *State) refusal(a *asked, thread string, mayEdit bool, at relay.Millis) text2 {
	switch {
	case a.verb.row().act == ActAnswer:
		return none
	case s.d.Config.Locked:
		return say("locked")
	case a.verb == VerbContinue:
		return s.cannotContinue(thread, at, a.bots)
	case !mayEdit:
		return say(s.d.Config.SteerBy)
	}
	return none
}

// bounds are the numbers that a group takes for a verb.
func (s *State) bounds(a *asked, set *Settings) (low, high int) {
	switch {
	case a.verb == VerbLimit:
		return 1, cmp.Or(s.d.Config.MaxDepth, maxNumber)
	case a.verb == VerbThreshold:
		return 0, cmp.Or(a.limit, set.Limit)
	}
	return 0, cmp.Or(s.base().Budget, maxNumber)
}

// meant is what a command given at a time changes, and how the group is told; the end of a pause counts from then.
func (s *State) meant(a *asked, about relay.MessageID, at relay.Millis) (c Changes, told, wrong text2) {
	set := s.settings()
	c, told = Changes{}, catalogue[string(a.verb)]
	var end *Until // of a pause or a mute; nil: now
	if a.verb == VerbPause || a.verb == VerbMute {
		end = &Until{}
	}
	until := say("somebody")
	if a.pause > 0 {
		end.Until = new(at + relay.Millis(a.pause.Milliseconds()))
		until = s.moment(*end.Until)
		until.zh += " "
	}
	who, are := labels(s.members(), a.bots...), text2{"is", ""}
	if len(a.bots) > 1 {
		are.en = "are"
	}
	switch a.verb {
	case VerbStatus:
		told = text2{s.statusText(false), s.statusText(true)}
	case VerbHelp:
		told = helpText(s.d.Config.Commands)
	case VerbWhy:
		told = text2{s.whyText(about, false), s.whyText(about, true)}
	case VerbPause, VerbResume:
		c.set(keyPaused, end)
		told = say(string(a.verb), until)
	case VerbMute, VerbUnmute:
		for _, bot := range a.bots {
			c.set(keyMuted+string(bot), end)
		}
		told = say(string(a.verb), who, are, until)
	case VerbAnswer:
		c.set(keyAnswer, a.mode)
		set.Answer = a.mode
		for _, bot := range a.bots {
			c.set(keyDefaultBot, bot)
			set.DefaultBot = bot
		}
		told = s.answers(&set)
	case VerbLimit, VerbThreshold, VerbBudget:
		low, high := s.bounds(a, &set)
		n, err := strconv.Atoi(a.number)
		switch {
		case a.number == "":
			return nil, none, say("no number", a.verb, low, high)
		case err != nil || n < low || n > high:
			return nil, none, say("bad number", a.verb, low, high, a.number)
		}
		c.set(string(a.verb), n)
		told = say(string(a.verb), n)
		switch {
		case a.verb == VerbBudget && n == 0 && high < maxNumber:
			told = say("operator", high)
		case a.verb == VerbBudget && n == 0:
			told = say("no budget")
		case a.verb == VerbLimit && n <= set.Threshold:
			c.set(keyThreshold, n)
			told = told.and(say("threshold too", n))
		}
	case VerbJudge:
		c.set(keyJudge, a.on)
		if told = say("judge off", set.Limit); a.on {
			told = say("judge on", set.Threshold)
		}
	case VerbStop:
		c.set(keyStopped, true)
	case VerbContinue:
		if set.Paused != nil { // what is held stays so
			return nil, none, say("still paused")
		}
		if s.personStopped() > 0 {
			c.set(keyStopped, false)
		}
		if len(a.bots) > 0 {
			told = say("continue at", who)
		}
	case VerbForget:
		for _, key := range slices.AppendSeq(slices.Clone(settingKeys), maps.Keys(s.d.Settings)) {
			if !strings.HasPrefix(key, keyIn) && key != keyStopped {
				c.set(key, nil)
			}
		}
	}
	return c, told, none
}

// stopped is the last round of a conversation that stopped.
type stopped struct {
	Round   relay.Millis    `json:"round"`
	Said    relay.Millis    `json:"said"` // of the first message that stopped
	Of      relay.MessageID `json:"of"`
	Sender  relay.AgentName `json:"sender"`
	Reason  relay.Reason    `json:"reason"`
	Noticed bool            `json:"noticed,omitempty"` // the group is shown it, or was
}

// releasable reports whether what stopped for a reason is shown, and can be released.
func releasable(why relay.Reason) bool { return why == relay.MaxDepth || why == relay.Budget }

// foldStop takes in that a message stopped. The first of its round is shown in the group.
func (s *State) foldStop(r *Record) {
	d, st := s.d, s.stoppedRound(r, r.Verdict.Stopped)
	if st == nil || st.Noticed {
		return
	}
	if r.Verdict.Stopped == relay.Budget { // shown once an hour
		if d.Budgeted > 0 && r.Verdict.At-d.Budgeted < hour {
			return
		}
		d.Budgeted = r.Verdict.At
	}
	st.Noticed = true
	s.begin(turn{Key: stopKey(r.Thread, st.Round), Kind: turnStop, Of: st.Of, Thread: r.Thread, Stop: new(*st),
		Since: s.now + gatherTime, First: r.Agent})
}

func stopKey(thread string, round relay.Millis) string {
	return "stop/" + thread + "/" + nr(uint64(round))
}

// stoppedRound is the last round of a thread that stopped, once r is known; nil: r is of an earlier one.
func (s *State) stoppedRound(r *Record, why relay.Reason) *stopped {
	st := s.d.Stops[r.Thread]
	switch {
	case st == nil || r.Round > st.Round && st.Said < r.Round:
		st = &stopped{Round: r.Round, Said: r.Said, Of: r.Of, Sender: r.Sender, Reason: why}
		s.d.Stops[r.Thread] = st
		prune(s.d.Stops, maxTopics, func(st *stopped) relay.Millis { return st.Round })
	case r.Round < st.Round && r.Said < st.Round:
		return nil
	}
	return st
}

// foldNotice takes in that the group was shown something. A sidecar that was killed does not show it again.
func (s *State) foldNotice(r *Record) {
	over := func(key string) {
		delete(s.d.Turns, key)
		delete(s.d.Todo, key)
	}
	over(r.Key)
	if r.Act == ActStop {
		if st := s.stoppedRound(r, r.Reason); st != nil {
			st.Noticed = true
			over(stopKey(r.Thread, st.Round))
		}
	}
}

// stillStopped are the bots at which something stopped that a continue at a time can release, and those that are
// muted.
func (s *State) stillStopped(thread string, at relay.Millis) (bots, muted []relay.AgentName) {
	set := s.settings()
	for _, l := range s.d.Lines[s.after(s.spoke(thread, at-1)):s.after(at-1)] {
		for _, v := range l.Verdicts {
			switch {
			case l.Thread != thread || l.Recalled || !releasable(v.Stopped) || !s.fresh(at, v.At):
			case set.Muted[v.Agent] != nil:
				muted = append(muted, v.Agent)
			default:
				bots = append(bots, v.Agent)
			}
		}
	}
	return here(bots, s.members()), here(muted, s.members())
}

func (s *State) fresh(at, stopped relay.Millis) bool {
	return at-stopped <= relay.Millis(s.d.Config.Window.Milliseconds())
}

// isContinue reports whether a person's message lets bots go on. It does so while the group is shown that bots
// stopped, and something can be released; else it is an ordinary message.
func (s *State) isContinue(m *relay.Message) bool {
	st := s.d.Stops[m.ThreadID]
	only, is := isContinue(s.spelledOut(m), s.members())
	if !is || st == nil || !st.Noticed || !s.d.Config.Notice ||
		s.settings().Paused != nil {
		return false
	}
	bots, _ := s.stillStopped(m.ThreadID, s.believed(m.TS))
	return len(bots) > 0 && (len(only) == 0 || slices.ContainsFunc(bots, func(b relay.AgentName) bool {
		return slices.Contains(only, b)
	}))
}

// cannotContinue says why bots, none for all, cannot go on; none: they can, also where only a person's stop is ended.
func (s *State) cannotContinue(thread string, at relay.Millis, only []relay.AgentName) text2 {
	bots, muted := s.stillStopped(thread, at)
	if len(only) > 0 {
		others := func(b relay.AgentName) bool { return !slices.Contains(only, b) }
		bots, muted = slices.DeleteFunc(bots, others), slices.DeleteFunc(muted, others)
	}
	switch {
	case s.personStopped() > 0 || len(bots) > 0:
		return none
	case len(muted) > 0:
		return say("still muted", labels(s.members(), muted...))
	}
	return say("nothing to continue")
}

// personStopped is when a person stopped the bots, unless they were let go on since; then it is 0.
func (s *State) personStopped() relay.Millis {
	stopped := false
	if !s.d.Settings.get(keyStopped, &stopped) || !stopped {
		return 0
	}
	at := s.d.Settings[keyStopped].At
	for _, c := range s.d.Continued { // each ends the stop for the whole group
		if c.At > at {
			return 0
		}
	}
	return at
}

// hold keeps a message that stopped at this bot, so that it can be released, and forgets what cannot be any more.
func (s *State) hold(a *arrival) {
	d := s.d
	d.Held = append(slices.DeleteFunc(d.Held, func(b *arrival) bool { return !s.fresh(s.now, b.At) }), a)
	for crowded(d.Held) {
		d.Held = slices.Delete(d.Held, 0, 1)
	}
}

// letGo is the decision on what a person releases.
func letGo() *policy.Decision {
	return &policy.Decision{Allow: true, Tier: policy.TierReleased, Depth: 1, Reason: "a person let the bots go on"}
}

// goneOn is a continue: its time, and when this sidecar took it in.
type goneOn struct {
	At    relay.Millis `json:"at"`
	Local relay.Millis `json:"local"`
}

// lateTime is how long after a continue a message may come that was said before it.
const lateTime = relay.Millis(1000)

// everywhere is the thread of what is said over the API, in no conversation.
const everywhere = "*"

// continued is when somebody last had the bots of a conversation go on, before a time.
func (s *State) continued(thread string, before relay.Millis) (at relay.Millis) {
	for _, key := range []string{thread, everywhere} {
		if c := s.d.Continued[key]; c.At < before {
			at = max(at, c.At)
		}
	}
	return at
}

// release gives the bot what stopped in the last round of a conversation. What it does not release it forgets: a later
// continue is about a later round.
func (s *State) release(r *Record) {
	if r.TS > s.d.Continued[r.Thread].At {
		s.d.Continued[r.Thread] = goneOn{r.TS, s.now}
		prune(s.d.Continued, maxTopics, func(c goneOn) relay.Millis { return c.At })
	}
	set, forMe := s.settings(), len(r.Bots) == 0 || slices.Contains(r.Bots, s.d.Config.Agent)
	var held []*arrival
	for _, a := range s.d.Held {
		l := s.byID[a.ID]
		switch {
		case l != nil && (r.Thread != everywhere && r.Thread != l.Thread || l.TS >= r.TS || !forMe):
			held = append(held, a)
		case l != nil && set.Paused == nil && set.Muted[s.d.Config.Agent] == nil && !l.Recalled &&
			s.spoke(l.Thread, r.TS-1) <= l.TS && s.fresh(r.TS, a.At):
			s.pass(a, letGo())
		}
	}
	s.d.Held = held
}

// released reports whether the bots went on while a message was on its way.
func (s *State) released(a *arrival) bool {
	l := s.byID[a.ID]
	for _, key := range []string{l.Thread, everywhere} {
		if c := s.d.Continued[key]; c.At > l.TS && a.At <= c.Local+lateTime && s.spoke(l.Thread, c.At-1) <= l.TS {
			return true
		}
	}
	return false
}

// requested carries out a request over the API.
func (s *State) requested(e *Event) {
	c, version, wrong := s.request(e)
	switch is := s.d.Settings.version(); {
	case !s.isMember():
		wrong = relay.Errorf(relay.CodeUnknownGroup, "this bot is not in this group; GET /v1/groups lists its groups")
	case s.d.Config.Locked:
		wrong = relay.Errorf(relay.CodeLocked, "%s", say("locked").en)
	case wrong == nil && version != "" && version != is:
		wrong = relay.Errorf(relay.CodeConflict,
			"version: the group has changed since; its version is %s now, read it again", is)
	}
	s.changed = false
	if act := cmp.Or(e.Verb.row().act, ActSet); wrong == nil && (len(c) > 0 || act == ActContinue) {
		id := "api/" + string(s.d.Config.Agent) + "/" + nr(s.d.Nr)
		r := Record{Kind: KindCommand, ID: id, Message: relay.MessageID("notice:" + id), Act: act, By: "api",
			Thread: everywhere, TS: s.now}
		if n := len(s.d.Lines); n > 0 && act == ActContinue { // whatever the clocks of the others
			r.TS = max(r.TS, s.d.Lines[n-1].TS+1)
		}
		r.Set, r.Bots = s.at(c, s.now, r.ID, true), e.Agents
		s.share(r)
	}
	s.effect(Effect{Do: Respond, Call: e.Call, Err: wrong})
}

// request is what a request changes, and the version of the settings that it is about; "": any.
func (s *State) request(e *Event) (c Changes, version string, wrong error) {
	if e.Verb == "" {
		return s.patch([]byte(e.Body))
	}
	c, _, mistake := s.meant(&asked{verb: e.Verb}, "", s.now)
	if mistake != none {
		wrong = relay.Errorf(relay.CodeInvalidRequest, "%s", mistake.en)
	}
	return c, "", wrong
}
