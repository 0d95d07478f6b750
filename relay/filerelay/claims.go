package filerelay

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"feishu-relay/internal/jsonl"
	"feishu-relay/internal/safefile"
)

const (
	claimsDir  = "claims"
	claimsLock = ".lock"     // no claim: no result of safefile.Name begins with a dot
	pruneEvery = time.Minute // expired claims of other keys are removed, at most so often
)

// Claim makes the file of key in RELAY_DIR/claims, as [relay.Claimer] says. The file
// holds when it expires, in Unix milliseconds; a lock makes looking and writing one step.
func (q *Queue) Claim(ctx context.Context, key string, life time.Duration) (first bool, err error) {
	if q.closed.Err() != nil {
		return false, fmt.Errorf("claim: %w", errClosed)
	}
	ctx, cancel := q.untilClosed(ctx)
	defer cancel()
	ctx, cancelLimit := context.WithTimeout(ctx, publishTimeout)
	defer cancelLimit()
	if ctx.Err() != nil {
		return false, fmt.Errorf("claim: %w", context.Cause(ctx))
	}
	if first, err = q.claim(ctx, safefile.Name(key), life); err != nil {
		return false, fmt.Errorf("claim: %w", err)
	}
	return first, nil
}

func (q *Queue) claim(ctx context.Context, name string, life time.Duration) (first bool, err error) {
	above, err := safefile.OpenDir(q.opt.Dir)
	if err != nil {
		return false, err
	}
	defer above.Close()
	root, err := safefile.OpenSub(above, claimsDir)
	if err != nil {
		return false, err
	}
	defer root.Close()
	lock, err := safefile.Open(root, claimsLock, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return false, err
	}
	defer lock.Close() // frees the lock
	err = jsonl.Retry(ctx, func(time.Duration) error {
		ok, err := safefile.TryLock(lock)
		if err == nil && !ok {
			err = jsonl.ErrLocked
		}
		return err
	})
	if err != nil {
		return false, err
	}
	now := time.Now()
	last, ns := q.pruned.Load(), now.UnixNano()
	if ns-last >= int64(pruneEvery) && q.pruned.CompareAndSwap(last, ns) {
		names, err := safefile.Names(root)
		if err != nil {
			return false, err
		}
		for _, name := range names {
			if held, err := claimed(root, name, now); err == nil && !held && name != claimsLock {
				_ = root.Remove(name) // else it is removed later
			}
		}
	}
	if held, err := claimed(root, name, now); held || err != nil {
		return false, err
	}
	err = safefile.ReplaceFast(root, name, strconv.AppendInt(nil, now.Add(life).UnixMilli(), 10))
	return err == nil, err
}

// claimed reports whether there is a claim that has not expired.
func claimed(root *os.Root, name string, now time.Time) (bool, error) {
	data, err := safefile.ReadFile(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	expires, broken := strconv.ParseInt(string(data), 10, 64)
	return broken == nil && now.UnixMilli() < expires, err
}
