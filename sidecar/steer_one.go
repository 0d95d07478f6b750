package sidecar

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"feishu-relay/internal/wait"
	"feishu-relay/relay"
	"feishu-relay/steer"
)

// ones decides which one of several bots gets a person's message. The sidecar whose turn it is
// claims the message, announces that to the others, delivers it, and announces the delivery. If the
// delivery is not announced in time, the next sidecar takes over: the message may be answered twice
// if the first sidecar died between the delivery and its announcement.
type ones struct {
	owner   string // of the claims of this process: those of an earlier one may be over for the other sidecars
	mu      sync.Mutex
	byID    *lru.Cache[relay.MessageID, *oneOf] // guarded by mu
	changed chan struct{}                       // closed at the next change; guarded by mu
}

// oneOf is what is known of one message.
type oneOf struct {
	try  int       // how many sidecars have claimed it and not delivered it
	at   time.Time // when the newest claim was heard of; zero: there is none of this try
	done bool
	by   relay.AgentName // whose claim or delivery is the newest; "": there is none
}

const (
	maxOnes  = 10_000
	oneTurn  = time.Second     // how long each candidate has to claim
	oneLease = 4 * time.Second // how long it has to deliver
	oneGrace = time.Second     // how much longer the others wait
	ownerEnd = "#"             // ends the agent's name in the owner of a claim
)

// taken and delivered are the two words.
const (
	actTaken     steer.Act = "taken"
	actDelivered steer.Act = "delivered"
)

func newOnes(agent relay.AgentName) *ones {
	o := &ones{owner: string(agent) + ownerEnd + randomID(), changed: make(chan struct{})}
	o.byID, _ = lru.New[relay.MessageID, *oneOf](maxOnes) // fails only for a size below 1
	return o
}

// heard takes in another sidecar's word, or this one's.
func (o *ones) heard(m *steer.Mark) {
	o.mu.Lock()
	defer o.mu.Unlock()
	is := o.of(m.Of)
	switch {
	case m.Act == actDelivered:
		if !is.done { // the first one counts
			is.done, is.by = true, m.Agent
		}
	case m.Try >= is.try:
		is.try, is.at, is.by = m.Try, time.Now(), m.Agent
	}
	close(o.changed)
	o.changed = make(chan struct{})
}

// of is called with mu held.
func (o *ones) of(id relay.MessageID) *oneOf {
	is, ok := o.byID.Get(id)
	if !ok {
		is = &oneOf{}
		o.byID.Add(id, is)
	}
	return is
}

// look is what is known about a message, and the channel that signals the next change. A claim without a
// delivery is over after its time.
func (o *ones) look(id relay.MessageID) (oneOf, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	is := o.of(id)
	if !is.done && !is.at.IsZero() && time.Since(is.at) > oneLease+oneGrace {
		is.try, is.at = is.try+1, time.Time{}
	}
	return *is, o.changed
}

// claimOne waits until it is known whether a person's message is for this bot, one of bots; of
// these, those that are there come first. Where it is, it has to be delivered before until;
// a zero until says that it was delivered before.
func (s *steering) claimOne(ctx context.Context, m *relay.Message, bots []relay.AgentName) (mine bool,
	until time.Time, err error) {
	began := time.Now()
	for {
		is, changed := s.ones.look(m.ID())
		turn := began.Add(time.Duration(s.oneTurn(bots)) * oneTurn)
		switch {
		case is.done:
			return is.by == s.cfg.Agent, time.Time{}, nil
		case !is.at.IsZero():
			turn = is.at.Add(oneLease + oneGrace)
		case !turn.After(time.Now()):
			key := "one/" + string(m.ID()) + "#" + strconv.Itoa(is.try)
			began, until = time.Now(), time.Now().Add(oneLease)
			holder, err := s.lane.queue.Claim(ctx, key, s.ones.owner, actLife)
			if err != nil {
				return false, until, err
			}
			agent, _, _ := strings.Cut(holder, ownerEnd)
			word := steer.Mark{ID: key, Agent: relay.AgentName(agent), Kind: steer.Taken, Act: actTaken, Try: is.try,
				Channel: m.Channel, ChatID: m.ChatID, Of: m.ID()}
			if holder == s.ones.owner && !s.known.Contains(key) {
				return true, until, s.publish(word)
			}
			s.ones.heard(&word)
			continue
		}
		if err := wait.Change(ctx, turn, changed); err != nil {
			return false, until, err
		}
	}
}

// oneAnswers reports whether one bot of a group answers: the one that spoke to a person last, and
// transcripts know people by their names.
func (s *steering) oneAnswers(chat relay.ChatID) bool {
	return s.records.state(relay.DefaultChannel, chat).Answer == steer.One
}

// oneTurn is this bot's place among bots: first those that are there, in their order.
func (s *steering) oneTurn(bots []relay.AgentName) int {
	online := s.presence.online()
	turn, behind := 0, false
	for _, bot := range bots {
		if bot == s.cfg.Agent {
			behind = true
		} else if !behind && online[bot] {
			turn++
		}
	}
	if s.deliver.doors.gateway != nil && !s.deliver.doors.gateway.Open() {
		turn += len(bots) // its bot is not there
	}
	return min(turn, int(8*time.Second/oneTurn))
}

// delivered tells the others that the bot has a person's message that is for one.
func (s *steering) delivered(m *relay.Message) {
	s.share(steer.Mark{ID: "one/" + string(m.ID()) + "/delivered", Kind: steer.Taken, Act: actDelivered, Channel: m.Channel,
		ChatID: m.ChatID, Of: m.ID()})
}

// oneOf waits until it is known which of some bots a person's message is for.
func (s *steering) oneOf(ctx context.Context, m *relay.Message, bots []relay.AgentName) relay.Reason {
	if !slices.Contains(bots, s.cfg.Agent) {
		return relay.NotForMe
	}
	mine, until, err := s.claimOne(ctx, m, bots)
	switch {
	case err != nil: // a person's message passes
		s.problems.set("steer", err)
		return relay.Pass
	case !mine:
		return relay.NotForMe
	case until.IsZero():
		return relay.Pass // the bot asks again: it may not have got the answer
	case time.Now().After(until):
		return relay.NotForMe // another one has taken it over
	}
	s.delivered(m)
	return relay.Pass
}

// wouldBeOne reports whether a person's message that is for one of bots is for this one: as it was
// decided, else as it would be now.
func (s *steering) wouldBeOne(m *relay.Message, bots []relay.AgentName) bool {
	if is, _ := s.ones.look(m.ID()); is.done || !is.at.IsZero() {
		return is.by == s.cfg.Agent
	}
	return slices.Contains(bots, s.cfg.Agent) && s.oneTurn(bots) == 0
}
