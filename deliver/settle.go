package deliver

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"feishu-relay/relay"
)

// ErrUnknown means that this bot was not given an item of that id.
var ErrUnknown = errors.New("this bot was not given a message of that id")

// ConflictError means that an item was settled differently before.
type ConflictError struct{ Result Result }

func (e *ConflictError) Error() string {
	result := e.Result
	if result == TimedOut {
		result = "undeliverable" // the word of the API
	}
	return fmt.Sprintf("the message was settled before: it is %s", result)
}

// settle takes in what the bot says of an item that it was given. A repeat has no effect.
func (s *State) settle(e *Event) {
	var x *item
	var err error
	if i := slices.IndexFunc(s.d.Items, func(x *item) bool { return x.ID == e.ID }); i >= 0 { // the oldest
		x = s.d.Items[i]
	}
	switch {
	case x == nil:
		err = s.settleEnded(e)
	case x.Try == 0:
		s.changed, err = false, ErrUnknown
	case e.Result != Retry:
		if !s.channel(x.Channel).Serial { // else the bot answers the write yet
			s.cancel(x)
		}
		s.end(x, e.Result, e.Detail)
	case x.Phase == waiting || x.Phase == pausing: // it will be written again anyway
		s.changed = false
	default:
		s.cancel(x)
		s.failed(x, Retry, "")
	}
	s.effects = append(s.effects, Effect{Do: Respond, Call: e.Call, Err: err})
}

// settleEnded settles an item that has ended.
func (s *State) settleEnded(e *Event) error {
	i := slices.IndexFunc(s.d.Ended, func(p *ended) bool { return p.ID == e.ID })
	if s.changed = false; i < 0 {
		return ErrUnknown
	}
	p := s.d.Ended[i]
	if e.Result == Delivered && s.turnLate(p) || p.Result == e.Result || e.Result == Refused && p.Result == TimedOut {
		return nil
	}
	return &ConflictError{p.Result}
}

// late takes in the report of a write whose item has ended.
func (s *State) late(e *Event) {
	s.changed = false
	if i := slices.IndexFunc(s.d.Ended, func(p *ended) bool { return p.Key == e.Key }); i >= 0 && e.Result == Delivered {
		s.turnLate(s.d.Ended[i])
	}
}

// turnLate turns a time-out into a delivery.
func (s *State) turnLate(p *ended) bool {
	if p.Result != TimedOut && p.Result != Expired {
		return false
	}
	p.Result, s.changed = Delivered, true
	s.effects = append(s.effects, Effect{Do: End, Key: p.Key, Chat: p.Chat, From: p.From, Sent: p.Sent, ID: p.ID,
		Channel: p.Channel, Result: Delivered, Late: true})
	return true
}

// withdraw keeps x from the bot, as far as that is still possible.
func (s *State) withdraw(x *item, why relay.Reason) {
	if s.changed = x != nil && x.Why == ""; !s.changed {
		return
	}
	switch x.Why = why; {
	case x.Ended && x.Phase == waiting:
		s.unqueue(x)
	case x.Phase == waiting || x.Phase == pausing:
		s.end(x, Withdrawn, "")
		return
	}
	s.effects = append(s.effects, Effect{Do: Blank, Key: x.Key})
}

// confirm takes in which item the reader of a channel had last: it has this and what was written before on the same
// connection. It says nothing of an id that is not known.
func (s *State) confirm(e *Event) {
	for _, last := range s.d.Items {
		if !e.Confirms || last.ID != e.ID || last.Channel != e.Channel {
			continue
		}
		for _, x := range slices.Clone(s.d.Items) {
			if x.Conn > 0 && x.Conn == last.Conn && x.Channel == e.Channel && x.Try <= last.Try {
				s.end(x, Delivered, "")
			}
		}
		return
	}
}

// saw notes that the bot is there.
func (s *State) saw() {
	if n := len(s.d.Spans); n == 0 || s.d.Spans[n-1].To > 0 {
		s.d.Spans = append(s.d.Spans[max(0, n-maxSpans+1):], span{From: s.now, To: s.now})
	}
}

// present notes whether the bot is there.
func (s *State) present(there bool) {
	last := len(s.d.Spans) - 1
	lasts := last >= 0 && s.d.Spans[last].To == 0
	switch s.changed = there != lasts; {
	case there && !lasts:
		s.d.Spans = append(s.d.Spans, span{From: s.now})
	case !there && lasts:
		s.d.Spans[last].To = s.now
	}
	s.d.Spans = s.d.Spans[max(0, len(s.d.Spans)-maxSpans):]
}

// wasThere reports whether the bot was there at any time between from and to.
func (s *State) wasThere(from, to relay.Millis) bool {
	return slices.ContainsFunc(s.d.Spans, func(p span) bool { return p.From <= to && (p.To == 0 || p.To >= from) })
}

// Full reports whether no further item may be taken for now.
func (s *State) Full() bool { return s.all.items >= maxItems || s.all.bytes >= maxItemsBytes }

// Has reports whether the text of an item may yet be written.
func (s *State) Has(key string) bool { return s.items[key] != nil && s.items[key].Why == "" }

// Chat are the items of a chat that may be written, a first time or again, in order, and whether the bot may have read
// a part of each.
func (s *State) Chat(chat string) (list []Item, given []bool) {
	for _, x := range s.d.Items {
		if x.Chat == chat {
			list, given = append(list, x.Item), append(given, x.Given || x.Phase == writing)
		}
	}
	return list, given
}

// Pending is an item in progress: the bot has it and has not answered.
type Pending struct {
	Item
	Channel string
	Since   relay.Millis // when it was written
}

// InProgress are the items in progress, the oldest first.
func (s *State) InProgress() (list []Pending) {
	for _, x := range s.d.Items {
		if x.isOpen() {
			list = append(list, Pending{x.Item, x.Channel, x.Since})
		}
	}
	slices.SortStableFunc(list, func(a, b Pending) int { return cmp.Compare(a.Since, b.Since) })
	return list
}

// Count is a number of items, and since when the oldest counts.
type Count struct {
	Items  int
	Oldest relay.Millis // 0: there is none
}

// Counts are the items still to be written, a first time or again, without mail, and those in progress.
func (s *State) Counts() (undelivered, inProgress Count) {
	for _, x := range s.d.Items {
		count, since := &undelivered, x.Turn
		if x.isOpen() {
			count, since = &inProgress, x.Since
		} else if x.Once || x.Ended {
			continue
		}
		if count.Items++; count.Oldest == 0 || since < count.Oldest {
			count.Oldest = since
		}
	}
	return undelivered, inProgress
}
