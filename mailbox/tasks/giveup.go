package tasks

import (
	"errors"
	"fmt"
	"os"
	"time"

	"feishu-relay/mailbox"
)

// Forget removes a task that this agent meant to give, and that could not be
// sent: its id is free again.
func (l *Ledger) Forget(peer mailbox.AgentID, id string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := key{Sent, peer, id}
	r, ok := l.records[k]
	if !ok || r.State != mailbox.Pending {
		return nil
	}
	if err := l.root.Remove(r.file()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("forget a task: %w", err)
	}
	delete(l.records, k)
	return nil
}

// GiveUp ends a task that this agent gave and that could not be handed over. It
// becomes failed and Overdue: should it arrive after all, its result still
// counts. A task that has gone on or ended stays as it is.
func (l *Ledger) GiveUp(peer mailbox.AgentID, id, reason string, now time.Time) (Record, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r, ok := l.records[key{Sent, peer, id}]
	if !ok {
		return Record{}, notFound(Sent, peer, id)
	}
	if r.State != mailbox.Pending {
		return r, nil
	}
	r.State, r.Reason, r.Overdue, r.UpdatedAt = mailbox.Failed, reason, true, now
	r = tidy(r)
	if err := l.put(r); err != nil {
		return Record{}, err
	}
	l.prune(now)
	return r, nil
}
