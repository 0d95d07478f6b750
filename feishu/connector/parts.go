package connector

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	larkws "github.com/larksuite/oapi-sdk-go/v3/ws"
)

// Bounds of fragments that wait for the rest of their event. Beyond them the
// oldest event's are dropped; Feishu delivers it again.
const (
	maxParts     = 1024 // of one event
	maxPartial   = 64   // events
	maxPartBytes = 16 << 20
	partsTime    = 10 * time.Second // since an event's first
)

// parts puts events together that come in several frames, in any order
// (docs/feishu.md 1.5). The zero value is empty.
type parts struct {
	sets  []*partial // oldest first
	bytes int
}

// partial is an event of which fragments are missing.
type partial struct {
	id      string
	since   time.Time
	pieces  [][]byte
	missing int
	bytes   int
}

// add takes a frame that came at now, and returns the event that it completes.
// An error tells of a dropped fragment, this one or older ones.
func (p *parts) add(frame larkws.Frame, now time.Time) (event []byte, whole bool, err error) {
	headers := larkws.Headers(frame.Headers)
	sum, seq := headers.GetInt(larkws.HeaderSum), headers.GetInt(larkws.HeaderSeq)
	if sum <= 1 {
		return frame.Payload, true, nil
	}
	id := headers.GetString(larkws.HeaderMessageID)
	if sum > maxParts || seq < 0 || seq >= sum || len(frame.Payload) == 0 {
		return nil, false, fmt.Errorf("fragment %d of %d", seq, sum)
	}
	err = p.expire(now)
	set := p.find(id)
	if set == nil {
		set = &partial{id: id, since: now, pieces: make([][]byte, sum), missing: sum}
		p.sets = append(p.sets, set)
	}
	if len(set.pieces) != sum {
		return nil, false, errors.Join(err, errors.New("fragments disagree about their number"))
	}
	if set.pieces[seq] == nil {
		set.pieces[seq] = frame.Payload
		set.missing--
		set.bytes += len(frame.Payload)
		p.bytes += len(frame.Payload)
	}
	if set.missing == 0 {
		p.drop(set)
		return bytes.Join(set.pieces, nil), true, err
	}
	for len(p.sets) > maxPartial || p.bytes > maxPartBytes {
		p.drop(p.sets[0])
		err = errors.New("too many unfinished events")
	}
	return nil, false, err
}

// expire drops the events whose fragments did not come in time.
func (p *parts) expire(now time.Time) error {
	var err error
	for len(p.sets) > 0 && now.Sub(p.sets[0].since) > partsTime {
		p.drop(p.sets[0])
		err = errors.New("an event stayed unfinished")
	}
	return err
}

func (p *parts) find(id string) *partial {
	if i := slices.IndexFunc(p.sets, func(set *partial) bool { return set.id == id }); i >= 0 {
		return p.sets[i]
	}
	return nil
}

func (p *parts) drop(set *partial) {
	p.sets = slices.DeleteFunc(p.sets, func(other *partial) bool { return other == set })
	p.bytes -= set.bytes
}
