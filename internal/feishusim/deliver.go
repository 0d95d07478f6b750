package feishusim

import (
	"cmp"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// Event types.
const (
	eventReceive   = "im.message.receive_v1"
	eventRecalled  = "im.message.recalled_v1"
	eventReacted   = "im.message.reaction.created_v1"
	eventUnreacted = "im.message.reaction.deleted_v1"
)

// Delivery is one attempt to deliver an event to an app.
type Delivery struct {
	Time      time.Time `json:"time"`
	App       string    `json:"app_id"`
	EventID   string    `json:"event_id"`
	EventType string    `json:"event_type"`
	MessageID string    `json:"message_id,omitempty"` // of the message that the event is about
	Attempt   int       `json:"attempt"`              // 1 is the first
	Acked     int       `json:"acked"`                // code or HTTP status of the answer; 0: none (yet)
	Body      []byte    `json:"-"`                    // the event's JSON
	frame     string    // message_id of the frame
}

// pending is an event to be delivered to an app, until it is acknowledged or
// dropped.
type pending struct {
	app       *app
	id        string
	eventType string
	message   string
	body      []byte
	attempts  int
	step      int       // in the schedule
	on        *conn     // the connection whose acknowledgement it waits for
	try       *Delivery // the last attempt; nil: none yet
	posting   bool      // waits for a webhook's answer
	early     bool      // held back by a fault
	timer     *time.Timer
}

func (p *pending) stop() {
	if p.timer != nil {
		p.timer.Stop()
	}
}

// after runs f after d, in place of the call planned for p.
func (s *Server) after(p *pending, d time.Duration, f func()) {
	p.stop()
	p.timer = time.AfterFunc(d, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closed && slices.Contains(p.app.pending, p) {
			f()
		}
	})
}

// deliverMessage delivers a new message to all apps that receive it.
func (s *Server) deliverMessage(c *chat, m *message) {
	for _, id := range c.Members {
		a := s.apps[id]
		if a != nil && s.receives(a, c, m) {
			s.emit(a, eventReceive, m.ID, s.receiveEvent(a, c, m))
		}
	}
}

// receiveEvent returns a message as a sees it (docs/feishu.md 3.1).
func (s *Server) receiveEvent(a *app, c *chat, m *message) map[string]any {
	sender := senderUser
	if m.SenderType == senderApp {
		sender = "bot"
	}
	content := m.received
	if m.card != nil {
		content = m.card.received()
	}
	msg := map[string]any{
		"message_id": m.ID, "chat_id": c.ID, "chat_type": "group", "message_type": m.Type, "content": content,
		"create_time": strconv.FormatInt(m.CreateTime, 10), "update_time": strconv.FormatInt(m.UpdateTime, 10),
	}
	if c.mode == modeP2P {
		msg["chat_type"] = modeP2P
	}
	for key, value := range map[string]string{"root_id": m.RootID, "parent_id": m.ParentID, "thread_id": m.ThreadID} {
		if value != "" {
			msg[key] = value
		}
	}
	var mentions []map[string]any
	for _, n := range m.mentions {
		kind := senderUser
		if s.apps[n.entity] != nil {
			kind = "bot"
		}
		mentions = append(mentions, map[string]any{
			"key": n.key, "id": s.ids(a, n.entity), "mentioned_type": kind, "name": s.name(n.entity),
			"tenant_key": tenant,
		})
	}
	if mentions != nil {
		msg["mentions"] = mentions
	}
	return map[string]any{
		"sender":  map[string]any{"sender_id": s.ids(a, m.Sender), "sender_type": sender, "tenant_key": tenant},
		"message": msg,
	}
}

// ids returns an entity's ids in an event.
func (s *Server) ids(a *app, entity string) map[string]any {
	out := map[string]any{"open_id": s.openID(a.ID, entity), "union_id": s.unionID(entity)}
	if s.users[entity] != nil && a.may(scopeUserID) {
		out["user_id"] = entity
	}
	return out
}

// memberEvent delivers the event of a member that joined or left.
func (s *Server) memberEvent(c *chat, entity string, came bool) {
	verb := "deleted"
	if came {
		verb = "added"
	}
	event := map[string]any{
		"chat_id": c.ID, "name": c.Name, "external": false, "operator_tenant_key": tenant,
		"i18n_names": map[string]string{"zh_cn": c.Name},
	}
	if a := s.apps[entity]; a != nil {
		s.emit(a, "im.chat.member.bot."+verb+"_v1", "", event)
	} else {
		for _, id := range c.Members {
			a := s.apps[id]
			if a == nil {
				continue
			}
			event["users"] = []any{map[string]any{"name": s.name(entity), "tenant_key": tenant,
				"user_id": s.ids(a, entity)}}
			s.emit(a, "im.chat.member.user."+verb+"_v1", "", event)
		}
	}
	s.bump()
}

// emit begins the delivery of an event to an app that subscribed its type.
func (s *Server) emit(a *app, eventType, message string, event any) {
	if slices.Contains(a.Events, eventType) {
		s.enqueue(a, eventType, message, event)
	}
}

// Emit delivers an event of any type to an app, whether subscribed or not: event
// is the JSON of its "event" field.
func (s *Server) Emit(app, eventType string, event json.RawMessage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, err := s.entity(app)
	if err != nil {
		return err
	}
	a := s.apps[id]
	if a == nil || !json.Valid(event) {
		return errField
	}
	s.enqueue(a, eventType, "", event)
	return nil
}

func (s *Server) enqueue(a *app, eventType, message string, event any) {
	if s.closed {
		return
	}
	p := &pending{app: a, id: newID("", 16), eventType: eventType, message: message}
	p.body = []byte(compact(struct {
		Schema string `json:"schema"`
		Header any    `json:"header"`
		Event  any    `json:"event"`
	}{"2.0", map[string]string{
		"event_id": p.id, "event_type": eventType, "create_time": strconv.FormatInt(time.Now().UnixMilli(), 10),
		"token": a.VerificationToken, "app_id": a.ID, "tenant_key": tenant,
	}, event}))
	a.pending = append(a.pending, p)
	if len(a.pending) > maxPending {
		s.drop(a.pending[0])
	}
	delay := time.Duration(0)
	if f := s.fault(FaultDelay, a.ID); f != nil {
		delay = f.Delay
	}
	if f := s.fault(FaultReorder, a.ID); f != nil {
		delay += rand.N(cmp.Or(f.Delay, time.Second))
	}
	if delay > 0 {
		p.early = true
		s.after(p, delay, func() { s.first(p) })
		return
	}
	s.first(p)
}

// first makes the first attempt.
func (s *Server) first(p *pending) {
	p.early = false
	if s.fault(FaultLose, p.app.ID) != nil {
		p.attempts++
		s.missed(p)
		return
	}
	s.push(p)
	if s.fault(FaultDuplicate, p.app.ID) != nil {
		s.push(p)
	}
}

// push makes an attempt: over one connection of the app at random, or to its
// webhook. The caller holds s.mu.
func (s *Server) push(p *pending) {
	p.attempts++
	d := &Delivery{
		Time: time.Now(), App: p.app.ID, EventID: p.id, EventType: p.eventType, MessageID: p.message,
		Attempt: p.attempts, Body: p.body, frame: newID("", 16),
	}
	if p.app.WebhookURL != "" {
		p.try, p.posting = d, true
		p.stop()
		s.note(d)
		s.tasks.Go(func() { s.post(p, d) })
		return
	}
	ready := p.app.ready()
	if len(ready) == 0 { // it waits for one
		p.attempts--
		p.stop()
		return
	}
	c := ready[rand.IntN(len(ready))]
	p.on, p.try = c, d
	s.note(d)
	pieces, apart := 1, time.Duration(0)
	if f := s.fault(FaultFragment, p.app.ID); f != nil {
		pieces, apart = cmp.Or(f.Parts, 2), f.Delay
	}
	for i, f := range frames(d.frame, p.body, pieces) {
		if wait := time.Duration(i) * apart; wait > 0 {
			time.AfterFunc(wait, func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				c.queue(f)
			})
			continue
		}
		c.queue(f)
	}
	s.after(p, s.opts.AckTimeout, func() { s.missed(p) })
}

// note records an attempt.
func (s *Server) note(d *Delivery) {
	s.deliveries = append(s.deliveries, d)
	if len(s.deliveries) > maxDeliveries {
		s.deliveries = s.deliveries[1:]
	}
	s.tell("delivery", d)
}

// tell announces an attempt as it is now.
func (s *Server) tell(kind string, d *Delivery) {
	shown := *d
	s.announce(Activity{Kind: kind, App: d.App, Delivery: &shown})
	s.bump()
}

// settle handles an answer to the attempt with this frame.
func (s *Server) settle(a *app, frame string, code int) {
	if s.fault(FaultNoAck, a.ID) != nil {
		return
	}
	for _, d := range slices.Backward(s.deliveries) {
		if d.frame != frame || d.App != a.ID || d.Acked != 0 {
			continue
		}
		d.Acked = code
		s.settled(a, d)
		return
	}
}

// settled handles an answered attempt: the event is done, or missed.
func (s *Server) settled(a *app, d *Delivery) {
	at := slices.IndexFunc(a.pending, func(p *pending) bool { return p.id == d.EventID })
	timely := at >= 0 && (a.pending[at].on != nil || a.pending[at].posting)
	s.tell("acked", d)
	switch {
	case !timely:
	case d.Acked == 200:
		s.drop(a.pending[at])
	case a.pending[at].try == d:
		s.missed(a.pending[at])
	}
}

// missed plans the next attempt for an event that was not acknowledged.
func (s *Server) missed(p *pending) {
	p.on, p.posting = nil, false
	p.stop()
	if p.step >= len(s.opts.Redeliver) {
		s.drop(p)
		return
	}
	wait := s.opts.Redeliver[p.step]
	s.after(p, wait, func() {
		p.step++
		s.push(p)
	})
}

// drop ends an event that was acknowledged, or will not be delivered again.
func (s *Server) drop(p *pending) {
	p.stop()
	p.app.pending = slices.DeleteFunc(p.app.pending, func(o *pending) bool { return o == p })
	s.bump()
}

// flush delivers the events that wait for a connection, in order, when the app
// has one again.
func (s *Server) flush(a *app) {
	for _, p := range slices.Clone(a.pending) {
		if p.on == nil && !p.posting && !p.early {
			s.push(p)
		}
	}
}

// Deliveries returns all attempts to deliver events, oldest first.
func (s *Server) Deliveries() []Delivery {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]Delivery, len(s.deliveries))
	for i, d := range s.deliveries {
		all[i] = *d
	}
	return all
}

// Waiting returns the number of events of an app that are not acknowledged yet.
func (s *Server) Waiting(app string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := s.apps[app]; a != nil {
		return len(a.pending)
	}
	return 0
}
