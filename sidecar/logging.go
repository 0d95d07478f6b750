package sidecar

import (
	"context"
	"log/slog"
	"sync/atomic"

	lru "github.com/hashicorp/golang-lru/v2"
	xrate "golang.org/x/time/rate"
)

// Warnings and errors with the same text: who makes many of them, such as a
// neighbour who writes nothing but malformed lines, must not fill the disk.
const (
	warnBurst = 20
	warnRate  = xrate.Limit(1) // a second, after the burst
	warnTexts = 256            // texts that are counted; all are constants
)

// limitedLog passes on at most [warnRate] warnings and errors of one text. The next
// one says in "suppressed" how many were left out before it.
type limitedLog struct {
	slog.Handler
	texts *lru.Cache[string, *warnings] // shared by all handlers made from one
}

// warnings are those of one text.
type warnings struct {
	limit      *xrate.Limiter
	suppressed atomic.Int64
}

func newLimitedLog(h slog.Handler) *slog.Logger {
	texts, _ := lru.New[string, *warnings](warnTexts) // fails only for a size below 1
	return slog.New(&limitedLog{h, texts})
}

// Handle implements [slog.Handler].
func (l *limitedLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return l.Handler.Handle(ctx, r)
	}
	w, ok := l.texts.Get(r.Message)
	if !ok {
		w = &warnings{limit: xrate.NewLimiter(warnRate, warnBurst)}
		if other, ok, _ := l.texts.PeekOrAdd(r.Message, w); ok {
			w = other
		}
	}
	if !w.limit.Allow() {
		w.suppressed.Add(1)
		return nil
	}
	if n := w.suppressed.Swap(0); n > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int64("suppressed", n))
	}
	return l.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (l *limitedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &limitedLog{l.Handler.WithAttrs(attrs), l.texts}
}

// WithGroup implements [slog.Handler].
func (l *limitedLog) WithGroup(name string) slog.Handler {
	return &limitedLog{l.Handler.WithGroup(name), l.texts}
}
