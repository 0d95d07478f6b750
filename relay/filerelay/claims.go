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
// holds when it expires, in Unix milliseconds.
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
	// Without the lock, of two processes that find the same expired claim one could remove
	// what the other has just made.
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
	names := []string{name}
	if last := q.pruned.Load(); now.UnixNano()-last >= int64(pruneEvery) && q.pruned.CompareAndSwap(last, now.UnixNano()) {
		if names, err = safefile.Names(root); err != nil {
			return false, err
		}
	}
	for _, name := range names {
		if err := removeExpired(root, name, now); err != nil {
			return false, err
		}
	}
	f, err := safefile.Open(root, name, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	_, err = f.Write(strconv.AppendInt(nil, now.Add(life).UnixMilli(), 10))
	return err == nil, errors.Join(err, f.Close())
}

// removeExpired removes a claim that has expired, or that its process did not finish
// before it died. The caller holds the lock.
func removeExpired(root *os.Root, name string, now time.Time) error {
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() || name == claimsLock {
		return nil
	}
	data, err := safefile.ReadFile(root, name)
	if err != nil {
		return err
	}
	if expires, err := strconv.ParseInt(string(data), 10, 64); err == nil && now.UnixMilli() < expires {
		return nil
	}
	return root.Remove(name)
}
