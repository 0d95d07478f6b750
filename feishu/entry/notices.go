package entry

import (
	"log/slog"
	"sync"
)

// notices is where the parts of an entry say what happened.
type notices struct {
	log   *slog.Logger
	count func(event string)
	said  sync.Map // messages of once
}

func newNotices(log *slog.Logger, count func(string)) *notices {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if count == nil {
		count = func(string) {}
	}
	return &notices{log: log, count: count}
}

// once warns the first time; the same message again is for debugging only. A
// bot tries without end, and its operator has to be told once.
func (n *notices) once(msg string, args ...any) {
	if _, again := n.said.LoadOrStore(msg, true); again {
		n.log.Debug(msg, args...)
		return
	}
	n.log.Warn(msg, args...)
}
