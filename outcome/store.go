package outcome

import "context"

// Store is where the sidecars share their outcomes: lines without newlines, of
// which it keeps a bounded number of the newest. It is safe for concurrent use.
type Store interface {
	// Append adds lines in their order, or returns an error; then some may have
	// been added, and all may be added again. It gives up when ctx is done. It
	// does not keep the lines.
	Append(ctx context.Context, lines [][]byte) error
	// Follow hands over all lines, first those that are kept, the oldest of each
	// writer first, then each new one, until ctx is done; then it returns nil.
	// take is called by one goroutine at a time and must not keep line; nil
	// stands for one that is too long. caughtUp is called once, when what stood
	// there has been handed over; whole says that this was all that was ever
	// added. Faults are waited out, and a line may be handed over again.
	Follow(ctx context.Context, take func(line []byte), caughtUp func(whole bool)) error
	// Close frees what Append holds. It may be called twice.
	Close() error
}
