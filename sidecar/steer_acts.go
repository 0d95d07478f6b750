package sidecar

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/feishu"
	"feishu-relay/internal/wait"
	"feishu-relay/relay"
	"feishu-relay/steer"
)

// acts are what is to be shown in a group once: a notice, an answer. The sidecar in whose turn
// it is claims it, shows it, and tells the others. What it had begun when it was killed it
// alone repeats, with the uuid of before: Feishu shows that once.
type acts struct {
	*steering
	wake chan struct{}

	mu     sync.Mutex
	wanted map[string]*wanted             // by Once, at most maxWanted; guarded by mu
	over   []string                       // Once of what was shown lately; guarded by mu
	stops  *lru.Cache[string, steer.Mark] // the newest notice of a stop, by topicKey
	// stoppedAt are the bots at which rounds stopped, by roundKey, also those that said so after the notice
	// was shown. Changed with mu held.
	stoppedAt *lru.Cache[string, []relay.AgentName]
	spent     *lru.Cache[string, steer.Mark] // the newest notice of a budget, wanted or shown, by chatKey
}

// wanted is an act that is not done, as far as is known.
type wanted struct {
	mark    steer.Mark
	try     int       // how many sidecars could not show it
	since   time.Time // when the turns began
	next    time.Time // not before
	pauses  *wait.Backoff
	another bool // another sidecar has begun it
}

const (
	maxWanted = 1000
	// actTurn is how long each sidecar has to begin.
	actTurn = 5 * time.Second
	// actLife is how long an act is tried: as long as Feishu knows its uuid.
	actLife = time.Hour
	// actGather is how long it is waited for the other bots at which the round stopped.
	actGather = time.Second
	// maxStoppedAt is how many bots are known at which one round stopped.
	maxStoppedAt = 200
	// actTime bounds one call to Feishu.
	actTime = 10 * time.Second
)

// want enters an act, or a further bot of it.
func (a *acts) want(m *steer.Mark) {
	defer wait.Wake(a.wake)
	a.mu.Lock()
	defer a.mu.Unlock()
	if m.Act == steer.Stop {
		known, _ := a.stoppedAt.Get(roundKey(m))
		a.stoppedAt.Add(roundKey(m), union(known, m.Bots))
	}
	if a.wanted[m.Once] != nil || slices.Contains(a.over, m.Once) || time.Since(m.TS.Time()) > actLife || a.joins(m) {
		return
	}
	a.note(m)
	if len(a.wanted) >= maxWanted {
		a.log.Warn("too many notices wait for groups; one was dropped", keyChat, m.ChatID)
		return
	}
	since := m.TS.Time()
	if m.Act == steer.Stop {
		since = since.Add(actGather)
	}
	a.wanted[m.Once] = &wanted{mark: *m, since: since, pauses: wait.NewBackoff(time.Second, time.Minute)}
}

// joins reports whether m's round is shown, or is to be, by another act. Sidecars that do not know of each other's stop
// yet may name one round for its limit and for its budget: the name that sorts first is kept, at all of them. It is
// called with mu held.
func (a *acts) joins(m *steer.Mark) bool {
	if m.Act != steer.Stop {
		return false
	}
	if last, ok := a.stops.Get(topicKey(m.Channel, m.ChatID, m.ThreadID)); ok && last.Round == m.Round {
		return true
	}
	for once, w := range a.wanted {
		if once < m.Once && sameRound(&w.mark, m) {
			return true
		}
	}
	a.drop(m)
	return false
}

// drop forgets the acts of m's round, which m shows. It is called with mu held.
func (a *acts) drop(m *steer.Mark) {
	for once, w := range a.wanted {
		if !sameRound(&w.mark, m) {
			continue
		}
		delete(a.wanted, once)
		if last, ok := a.spent.Get(chatKey(m.Channel, m.ChatID)); ok && last.Once == once {
			a.spent.Remove(chatKey(m.Channel, m.ChatID)) // the group is not shown that
		}
	}
}

// roundKey is the round that a stop is of.
func roundKey(m *steer.Mark) string {
	return topicKey(m.Channel, m.ChatID, m.ThreadID) + "/" + strconv.FormatInt(int64(m.Round), 10)
}

func sameRound(a, b *steer.Mark) bool { return a.Act == b.Act && roundKey(a) == roundKey(b) }

// union is a list of the bots of two, at most maxStoppedAt.
func union(bots, more []relay.AgentName) []relay.AgentName {
	all := slices.Clone(bots)
	for _, bot := range more {
		if !slices.Contains(all, bot) && len(all) < maxStoppedAt {
			all = append(all, bot)
		}
	}
	return all
}

// note remembers when a group was last to be shown that its budget is spent. It is called with
// mu held.
func (a *acts) note(m *steer.Mark) {
	if m.Act != steer.Stop || m.Reason != relay.Budget {
		return
	}
	key := chatKey(m.Channel, m.ChatID)
	if last, ok := a.spent.Get(key); !ok || last.TS <= m.TS {
		a.spent.Add(key, *m)
	}
}

// spentBefore reports whether the group was shown within the hour before a time, by another
// notice than once, that its budget is spent.
func (a *acts) spentBefore(channel string, chat relay.ChatID, once string, at relay.Millis) bool {
	last, ok := a.spent.Get(chatKey(channel, chat))
	return ok && last.Once != once && at.Time().Sub(last.TS.Time()) < time.Hour
}

// failed has the next sidecar try. The one that failed lets a turn pass while others of the group have not tried: it may
// not know that they are online.
func (a *acts) failed(m *steer.Mark) {
	defer wait.Wake(a.wake)
	now, next := time.Now(), time.Time{}
	if m.Agent == a.cfg.Agent && m.Try+1 < len(a.records.state(m.Channel, m.ChatID).members) {
		next = now.Add(actTurn)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if w, ok := a.wanted[m.Once]; ok && m.Try >= w.try {
		w.try, w.another, w.since, w.next = m.Try+1, false, now, next
	}
}

// done forgets what was shown.
func (a *acts) done(m *steer.Mark) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.wanted, m.Once)
	a.note(m)
	if m.Act == steer.Stop {
		a.drop(m)
		if last, ok := a.stops.Get(topicKey(m.Channel, m.ChatID, m.ThreadID)); !ok || last.Round < m.Round ||
			last.Round == m.Round && m.Once <= last.Once {
			a.stops.Add(topicKey(m.Channel, m.ChatID, m.ThreadID), *m)
		}
	}
	if a.over = append(a.over, m.Once); len(a.over) > maxWanted {
		a.over = slices.Delete(a.over, 0, 1)
	}
}

// lastStop is the newest notice in a conversation that its bots were stopped. One that is to be
// shown counts: people may see it before the mark that says so is taken in here.
func (a *acts) lastStop(channel string, chat relay.ChatID, thread string) (last steer.Mark, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	last, ok = a.stops.Get(topicKey(channel, chat, thread))
	for _, w := range a.wanted {
		m := &w.mark
		if m.Act == steer.Stop && m.Channel == channel && m.ChatID == chat && m.ThreadID == thread &&
			(!ok || m.Round > last.Round) {
			last, ok = *m, true
		}
	}
	return a.withAll(last), ok
}

// withAll is a notice with all bots at which its round stopped.
func (a *acts) withAll(m steer.Mark) steer.Mark {
	if known, ok := a.stoppedAt.Get(roundKey(&m)); ok && m.Act == steer.Stop {
		m.Bots = union(m.Bots, known)
	}
	return m
}

// about reports whether a reaction on a message is, or is to be, the notice of a stop.
func (a *acts) about(id relay.MessageID, emoji string) bool {
	is := func(m *steer.Mark) bool { return m.Act == steer.Stop && m.Of == id && emoji == stopEmoji }
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.wanted {
		if is(&w.mark) {
			return true
		}
	}
	return slices.ContainsFunc(a.stops.Values(), func(m steer.Mark) bool { return is(&m) })
}

// stopEmoji is the emoji_type of the reaction that shows a stop.
const stopEmoji = "CrossMark"

// newestStop is the newest notice in a group that its bots were stopped.
func (a *acts) newestStop(channel string, chat relay.ChatID) (newest steer.Mark, ok bool) {
	for _, m := range a.stops.Values() {
		if m.Channel == channel && m.ChatID == chat && m.TS > newest.TS {
			newest, ok = m, true
		}
	}
	return a.withAll(newest), ok
}

// run shows what is to be shown in this sidecar's turn, until ctx is done.
func (a *acts) run(ctx context.Context) {
	_ = wait.Change(ctx, time.Time{}, a.caughtUp) // what was shown before this process began has to be known first
	for ctx.Err() == nil {
		due, pause := a.due(time.Now())
		for _, w := range due {
			a.attempt(ctx, w)
		}
		if len(due) == 0 {
			_ = wait.Change(ctx, time.Now().Add(pause), a.wake)
		}
	}
}

// due lists what it is this sidecar's turn to show now, and returns when to look again. The registry
// is asked without mu held: those who take in marks and events do not wait for it.
func (a *acts) due(now time.Time) (due []*wanted, pause time.Duration) {
	a.mu.Lock()
	asked := map[*wanted]steer.Mark{}
	for once, w := range a.wanted {
		if now.Sub(w.mark.TS.Time()) > actLife {
			delete(a.wanted, once)
			continue
		}
		if on, ok := a.chats.wentOn(w.mark.Channel, w.mark.ChatID, w.mark.ThreadID); ok && w.mark.Act == steer.Stop &&
			on.TS > w.mark.Said { // nobody has to let them go on any more
			delete(a.wanted, once)
			continue
		}
		if !w.another {
			asked[w] = w.mark
		}
	}
	a.mu.Unlock()
	bots, later := map[*wanted][]steer.Bot{}, map[*wanted]bool{}
	for w, m := range asked {
		var write bool
		bots[w], write = a.showers(&m)
		later[w] = write && isFeishus(m.Of) && !a.app.api.Ready() // the bot has not called Feishu yet
	}
	pause = time.Minute
	a.mu.Lock()
	defer a.mu.Unlock()
	for w := range asked {
		if a.wanted[w.mark.Once] != w || w.another { // meanwhile
			continue
		}
		turn := a.turn(w, bots[w])
		if turn < 0 || later[w] { // until it can write
			pause = min(pause, time.Second)
			continue
		}
		at := w.since.Add(time.Duration(turn) * actTurn)
		if w.next.After(at) {
			at = w.next
		}
		if at.After(now) {
			pause = min(pause, at.Sub(now))
			continue
		}
		due = append(due, w)
	}
	return due, pause
}

// showers are the bots in whose sidecars' turn it is to show m, and whether they can write to
// Feishu: where none of those that are online can, m is only told.
func (a *acts) showers(m *steer.Mark) (bots []steer.Bot, write bool) {
	bots = a.bots(a.records.state(m.Channel, m.ChatID))
	for i := range bots { // what this one shows again after a restart it alone can show
		if bots[i].Agent == a.cfg.Agent {
			bots[i].CanWrite = a.canWrite(m.Channel)
		}
	}
	bots = slices.DeleteFunc(bots, func(b steer.Bot) bool { return !b.Online })
	if writers := slices.DeleteFunc(slices.Clone(bots), func(b steer.Bot) bool { return !b.CanWrite }); len(writers) > 0 {
		return writers, true
	}
	return bots, false
}

// turn is when this sidecar's turn is to show w: 0 is the first of its showers, -1 never. The one
// that wants it is first; after each that could not show it comes the next. It is called with mu
// held.
func (a *acts) turn(w *wanted, bots []steer.Bot) int {
	self, first := -1, 0
	for i, b := range bots {
		if b.Agent == a.cfg.Agent {
			self = i
		}
		if b.Agent == w.mark.Agent {
			first = i
		}
	}
	if self < 0 {
		return -1
	}
	n := len(bots)
	return ((self-first-w.try)%n + n) % n
}

// attempt shows w, if no other sidecar has begun to.
func (a *acts) attempt(ctx context.Context, w *wanted) {
	a.mu.Lock()
	m, try := a.withAll(w.mark), w.try
	a.mu.Unlock()
	key := m.Once + "#" + strconv.Itoa(try)
	holder, err := a.lane.queue.Claim(ctx, key, string(a.cfg.Agent), actLife)
	switch {
	case err != nil:
		a.later(w, err)
		return
	case holder != string(a.cfg.Agent):
		a.mu.Lock()
		w.another = w.try == try // else that one has failed meanwhile
		a.mu.Unlock()
		return
	}
	a.trace("sending")
	done, err := a.write(ctx, &m, try)
	_, coded := errors.AsType[*feishu.CodeError](err)
	switch {
	case err == nil:
		a.trace("shown")
		err = a.publish(done)
	case coded:
		a.log.Warn("Feishu refused a notice for the group; another sidecar tries", keyChat, m.ChatID,
			keyMsg, m.Of, keyErr, err)
		a.problems.set("steer", err)
		err = a.publish(steer.Mark{Kind: steer.Failed, Channel: m.Channel, ChatID: m.ChatID, Once: m.Once, Try: try})
	}
	if err != nil {
		a.later(w, err)
	}
}

// later tries w again after a pause.
func (a *acts) later(w *wanted, err error) {
	a.problems.set("steer", err)
	a.mu.Lock()
	defer a.mu.Unlock()
	w.next = time.Now().Add(w.pauses.Next())
}

// write shows m in Feishu, and returns the notice that says so. Where no sidecar of the group
// can write to Feishu, or each of them has failed, the notice is all that there is.
func (a *acts) write(ctx context.Context, m *steer.Mark, try int) (steer.Mark, error) {
	done := *m
	done.Kind, done.ID, done.TS = steer.Notice, "done:"+m.Once, 0
	done.MessageID = relay.MessageID("notice:" + short(m.Once))
	ctx, cancel := context.WithTimeout(ctx, actTime)
	defer cancel()
	g := a.records.state(m.Channel, m.ChatID)
	text := m.Act == steer.Answer || a.noticeIn(g) == "text"
	if m.Act == steer.Stop {
		done.Text = steer.StopNotice(a.botName(g, m.Sender), a.botNames(g, m.Bots), m.Reason, m.Chinese)
	}
	_, write := a.showers(m)
	if !isFeishus(m.Of) || !write || try >= len(g.members) { // who went offline has failed, too
		return done, nil
	}
	if !text {
		return done, a.app.api.React(ctx, m.Of, stopEmoji)
	}
	id, err := a.app.api.Reply(ctx, m.Of, done.Text, short(m.Once))
	if id != "" {
		done.MessageID = id
	}
	return done, err
}

// noticeIn is how a group is shown that its bots were stopped.
func (s *steering) noticeIn(g *groupState) string {
	return cmp.Or(g.file.StopNotice, s.cfg.Steer.StopNotice)
}

// botName is how people know a bot.
func (s *steering) botName(g *groupState, agent relay.AgentName) string {
	m, _ := g.record.Member(agent)
	if m.Name == "" {
		bot, _ := s.app.book.Agent(agent, "", "")
		m.Name = bot.Name
	}
	_, names := s.presence.cards()
	return cmp.Or(m.Name, names[agent], string(agent))
}

func (s *steering) botNames(g *groupState, agents []relay.AgentName) (names []string) {
	for _, agent := range slices.Sorted(slices.Values(agents)) {
		names = append(names, s.botName(g, agent))
	}
	return names
}

// short is a text's hash, 32 characters: Feishu takes a uuid of at most 50.
func short(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

func randomID() string { return rand.Text()[:10] }
