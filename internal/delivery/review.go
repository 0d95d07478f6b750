package delivery

import (
	"slices"

	"feishu-relay/relay"
)

// A Review decides on a message that has not ended: it returns a reason to withdraw the
// message, or "". It may change the message's text, which takes effect only if nothing of it
// was written. given reports that the message was written whole once, or is being written.
type Review func(m *Message, given bool) (reason string)

// WithdrawnError means that a message was withdrawn.
type WithdrawnError struct{ Reason string }

func (e *WithdrawnError) Error() string { return "it was withdrawn: " + e.Reason }

// Review calls review for each message of a chat that has not ended. A withdrawn message ends as
// [Withdrawn] unless it is in progress, and its text is removed from the disk. One in progress
// is not written again and ends with the bot's answer. Review does not wait for these ends. It
// calls review without a lock.
func (d *Deliveries) Review(channel string, chat relay.ChatID, review Review) {
	key := Ref{Channel: channel, Chat: chat}.chat()
	d.mu.Lock()
	var list []*entry
	if l := d.lines[key]; l != nil {
		list = slices.Clone(l.entries)
	}
	d.mu.Unlock()
	for _, e := range list {
		d.review(e, review)
	}
}

func (d *Deliveries) review(e *entry, review Review) {
	for review != nil {
		d.mu.Lock()
		m, given := e.m, e.given()
		d.mu.Unlock()
		reason := review(&m, given)
		if d.reviewed(e, m, given, reason) {
			return
		}
	}
}

// reviewed applies the result of a Review; it returns false if given no longer holds.
func (d *Deliveries) reviewed(e *entry, m Message, given bool, reason string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case e.given() != given:
		return false
	case reason == "" && !given:
		e.m = m
	case reason != "" && e.withdrawn == "":
		e.withdrawn = reason
		close(e.stop)
		e.wake()
	}
	return true
}

// given reports whether the bot may have read a part of e. The caller holds mu.
func (e *entry) given() bool {
	return e.had || e.phase == writing || e.phase == written || e.phase == accepted
}

// withdrawal is the error with which e ends; nil if it was not withdrawn.
func (d *Deliveries) withdrawal(e *entry) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.withdrawn == "" {
		return nil
	}
	return &WithdrawnError{e.withdrawn}
}

// withoutText returns m without its text.
func withoutText(m Message) Message {
	m.Content, m.Plain, m.Metadata = "", "", nil
	if m.Source != nil {
		source := *m.Source
		source.Content, source.Metadata = "", nil
		m.Source = &source
	}
	return m
}
