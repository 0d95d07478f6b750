// Package filebox keeps mail and cards in a folder that several processes
// share, ours and those of other programs (docs/protocol.md 6.4, 6.5):
//
//	_registry.json                                   all agents' cards
//	_registry.json.lock                              held while one of ours rewrites them
//	_registry.json.broken-<ms>                       what was not JSON, kept for a person
//	<agent>/inbox/<ms>_<from>_<suffix>.msg.json      waits
//	<agent>/processed/<same name>                    was taken
//	<agent>/malformed/<same name>                    was not a message
//
// # Mail
//
// A message is written as <name>.tmp and renamed when it is whole. Nothing is
// synced to the disk: a killed process loses and tears nothing, a power cut may
// take the last seconds. The suffix holds the time behind the milliseconds and
// random letters, so that names sort as the messages were put and no two are
// the same. A reader takes any *.msg.json, in the order of the time it begins
// with (seconds, milliseconds or finer); what another program writes in place
// comes when it is whole.
//
// # Cards
//
// Other programs rewrite the whole registry and lock nothing. A card that is lost or goes back to an older heartbeat by
// that is there again with its agent's next heartbeat.
//
// # Rights
//
// As package safefile says: folders 0700 and files 0600, or the group's rights in a
// folder that is shared with a group.
package filebox

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/mailbox"
)

// recheck is how often the folders are looked at without a notice of a change: notices
// get lost, on network file systems always.
const recheck = 2 * time.Second

// Store is a mailbox.Store in a folder.
type Store struct {
	dir        safefile.Folder
	log        *slog.Logger
	recheck    time.Duration // recheck, but for tests
	unnotified bool          // no notices of change: for tests of the recheck alone
	lockWait   time.Duration // lockWait, but for tests
	settled    atomic.Uint64 // since the last pruning

	mu     sync.Mutex
	counts map[mailbox.AgentID]*count // guarded by mu
	named  int64                      // the time in the newest name of ours, in nanoseconds; guarded by mu
}

var _ mailbox.Store = (*Store)(nil)

// Open returns a store in the folder dir, which is made where it is missing. What was
// quarantined, fixed or removed is logged; nil: it is not.
func Open(dir string, log *slog.Logger) (*Store, error) {
	s := &Store{
		dir:      safefile.Folder{Path: dir, Closed: errClosed},
		log:      cmp.Or(log, slog.New(slog.DiscardHandler)),
		recheck:  recheck,
		lockWait: lockWait,
		counts:   map[mailbox.AgentID]*count{},
	}
	if _, err := s.dir.Open(true); err != nil {
		return nil, fmt.Errorf("mailbox: %w", err)
	}
	if name := safefile.NetworkFS(dir); name != "" {
		s.log.Warn("the mailbox is on a network file system: locks and change notifications may not work",
			"dir", dir, "file_system", name)
	}
	return s, nil
}

// Close frees the folder. Calls after it fail.
func (s *Store) Close() error { return s.dir.Close() }

var errClosed = errors.New("the mailbox was closed")

// checkAgent refuses an agent id that could be a path or one of our own names.
func checkAgent(what string, id mailbox.AgentID) error {
	if err := mailbox.CheckAgent(id); err != nil {
		return fmt.Errorf("%s agent %q: %w", what, id, err)
	}
	return nil
}
