package filebox

import (
	"time"

	"feishu-relay/mailbox"
)

// WithoutNotices makes s get no notices of change.
func WithoutNotices(s *Store) { s.unnotified = true }

// SetRecheck makes s look at its folders so often.
func SetRecheck(s *Store, every time.Duration) { s.recheck = every }

// SetLockWait makes s wait for the registry's lock for wait only.
func SetLockWait(s *Store, wait time.Duration) { s.lockWait = wait }

// Prune keeps an agent's folders within their bounds now.
func Prune(s *Store, agent mailbox.AgentID) { s.prune(agent) }

// The bounds and waits that tests go by.
const (
	MaxProcessed = maxProcessed
	MaxMalformed = maxMalformed
	MaxAge       = maxAge
	DeadTemp     = deadTemp
	MaxBroken    = maxBroken
	MaxRegistry  = maxRegistry
	MaxEntries   = maxEntries
	Unfinished   = unfinished
)

// Reformat reads a registry and writes it again.
func Reformat(data []byte) ([]byte, bool) {
	all, err := parseRegistry(data)
	if err != nil {
		return nil, false
	}
	data, err = all.format()
	return data, err == nil
}
