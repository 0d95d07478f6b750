package filerelay

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"feishu-relay/internal/jsonl"
	"feishu-relay/internal/safefile"
)

const (
	claimsLock = ".lock"     // not a claim: no result of safefile.Name begins with a dot
	pruneEvery = time.Minute // how often, at most, expired claims of other keys are removed
	// longestLife is assumed for claims of other keys if they cannot be read.
	longestLife = 366 * 24 * time.Hour
)

// Claim implements [relay.Claimer] with a file per key in RELAY_DIR/claims. The file holds the time at
// which it expires, in Unix milliseconds, a space, and the owner. All files are made and removed under
// the lock of one file.
func (q *Queue) Claim(ctx context.Context, key, owner string, life time.Duration) (holder string, err error) {
	above, err := q.dir.Open(true)
	if err != nil {
		return "", err
	}
	root, err := safefile.OpenSub(above, "claims")
	if err != nil {
		return "", err
	}
	defer root.Close()
	lock, err := safefile.Open(root, claimsLock, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return "", err
	}
	defer lock.Close() // which releases it
	err = q.retry(ctx, func() error {
		if ok, err := safefile.TryLock(lock); ok || err != nil {
			return err
		}
		return jsonl.ErrLocked
	})
	if err != nil {
		return "", err
	}
	now := time.Now()
	if now.UnixNano()-q.pruned.Load() >= int64(pruneEvery) {
		q.pruned.Store(now.UnixNano())
		prune(root, now)
	}
	name := safefile.Name(key)
	holder, expires, err := claimed(root, name, life)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !now.Before(expires) {
		holder = owner
		err = safefile.ReplaceFast(root, name, fmt.Appendf(nil, "%d %s", now.Add(life).UnixMilli(), owner))
	}
	if err != nil {
		return "", err
	}
	return holder, nil
}

// claimed returns the holder of a claim and when it expires: at the latest life after it was written,
// also if it is unreadable, such as an empty one after a power cut.
func claimed(root *os.Root, name string, life time.Duration) (holder string, expires time.Time, err error) {
	info, err := root.Lstat(name)
	if err != nil {
		return "", expires, err
	}
	expires = info.ModTime().Add(life)
	data, err := safefile.ReadFile(root, name)
	text, holder, _ := strings.Cut(string(data), " ")
	ms, broken := strconv.ParseInt(text, 10, 64)
	if at := time.UnixMilli(ms); broken == nil && at.Before(expires) {
		expires = at
	}
	return holder, expires, err
}

// prune removes expired claims, and temporary files that a killed process left. After an error
// a later call tries again.
func prune(root *os.Root, now time.Time) {
	names, _ := safefile.Names(root)
	for _, name := range names {
		if _, expires, err := claimed(root, name, longestLife); err == nil && now.After(expires) && name != claimsLock {
			_ = root.Remove(name)
		}
	}
}
