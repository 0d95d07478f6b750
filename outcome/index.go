package outcome

import (
	"cmp"
	"slices"

	"feishu-relay/relay"
)

// maxIndex is how many outcomes a reader remembers, about 10 MB. With an eighth
// more, the oldest are evicted together.
const maxIndex = 20_000

// record is an outcome, and when it was first read.
type record struct {
	Outcome
	since relay.Millis
}

// index holds the newest outcomes of all chats and agents. It is not safe for
// concurrent use.
type index struct {
	max     int
	all     map[key]record
	evicted bool // outcomes were evicted
}

// add merges o into the known outcome, and reports whether that changed it.
func (x *index) add(o Outcome) (_ Outcome, changed bool) {
	k := o.key()
	known, ok := x.all[k]
	if !ok {
		x.all[k] = record{o, o.At}
		if len(x.all) > x.max+x.max/8 {
			x.evict()
		}
		return o, true
	}
	merged := record{merge(known.Outcome, o), min(known.since, o.At)}
	if changed = !same(merged.Outcome, known.Outcome); changed || merged.since != known.since {
		x.all[k] = merged
	}
	return merged.Outcome, changed
}

// evict removes the oldest until max are left.
func (x *index) evict() {
	type age struct {
		key
		since relay.Millis
	}
	ages := make([]age, 0, len(x.all))
	for k, r := range x.all {
		ages = append(ages, age{k, r.since})
	}
	slices.SortFunc(ages, func(a, b age) int { return cmp.Compare(a.since, b.since) })
	for _, a := range ages[:len(ages)-x.max] {
		delete(x.all, a.key)
	}
	x.evicted = true
}

// of returns the records of a chat.
func (x *index) of(chat chatKey) map[key]record {
	found := map[key]record{}
	for k, r := range x.all {
		if k.chatKey == chat {
			found[k] = r
		}
	}
	return found
}

// newest orders found by message, in the order in which they were first read,
// and returns the last limit outcomes.
func newest(found map[key]record, limit int) []Outcome {
	began := map[relay.MessageID]relay.Millis{}
	list := make([]record, 0, len(found))
	for _, r := range found {
		if at, ok := began[r.RelayMsgID]; !ok || r.since < at {
			began[r.RelayMsgID] = r.since
		}
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b record) int {
		return cmp.Or(
			cmp.Compare(began[a.RelayMsgID], began[b.RelayMsgID]),
			cmp.Compare(a.RelayMsgID, b.RelayMsgID),
			cmp.Compare(a.since, b.since),
			cmp.Compare(a.Agent, b.Agent))
	})
	list = list[max(0, len(list)-limit):]
	out := make([]Outcome, len(list))
	for i, r := range list {
		out[i] = r.Outcome
	}
	return out
}
