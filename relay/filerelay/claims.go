package filerelay

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"feishu-relay/internal/jsonl"
	"feishu-relay/internal/safefile"
)

// No result of safefile.Name begins with a dot: such a file is not a claim.
const (
	claimsDir  = "claims"
	claimsLock = ".lock"
	claimsTemp = ".new-"

	pruneEvery = time.Minute // how often, at most, expired claims of other keys are removed
	// longestLife is assumed when claims of other keys are removed, whose life is unknown.
	longestLife = 366 * 24 * time.Hour
	// clockSlack is how far the clock of the file system may be behind ours.
	clockSlack = time.Minute
)

// errClaimsLocked is returned by Claim if it could not remove an expired claim in time.
var errClaimsLocked = fmt.Errorf("%s was locked by another process for %v, and an expired claim is in the way",
	filepath.Join(claimsDir, claimsLock), publishTimeout)

// Claim implements [relay.Claimer] with a file per key in RELAY_DIR/claims. The file holds the time at
// which it expires, in Unix milliseconds, a space, and the owner. It is written under another name and
// then linked to its own name, which only one process can do; no lock is needed.
func (q *Queue) Claim(ctx context.Context, key, owner string, life time.Duration) (holder string, err error) {
	if q.closed.Err() != nil {
		return "", fmt.Errorf("claim: %w", errClosed)
	}
	ctx, cancel := q.untilClosed(ctx)
	defer cancel()
	ctx, cancelLimit := context.WithTimeoutCause(ctx, publishTimeout, errClaimsLocked)
	defer cancelLimit()
	if ctx.Err() != nil {
		return "", fmt.Errorf("claim: %w", context.Cause(ctx))
	}
	above, err := safefile.OpenDir(q.opt.Dir)
	if err != nil {
		return "", fmt.Errorf("claim: %w", err)
	}
	defer above.Close()
	root, err := safefile.OpenSub(above, claimsDir)
	if err != nil {
		return "", fmt.Errorf("claim: %w", err)
	}
	defer root.Close()
	c := claims{root: root, folder: safefile.Folder{Path: filepath.Join(q.opt.Dir, claimsDir)}}
	defer c.folder.Close()
	if holder, err = c.claim(ctx, safefile.Name(key), owner, life); err != nil {
		return "", fmt.Errorf("claim: %w", err)
	}
	last, now := q.pruned.Load(), time.Now().UnixNano()
	if (now < last || now-last >= int64(pruneEvery)) && q.pruned.CompareAndSwap(last, now) {
		if err := c.prune(); err != nil {
			q.log.Warn("expired claims cannot be removed", "err", err)
		}
	}
	return holder, nil
}

// claims is the folder of the claims, opened for one call.
type claims struct {
	root   *os.Root
	folder safefile.Folder // the same folder, for the lock
}

func (c *claims) claim(ctx context.Context, name, owner string, life time.Duration) (holder string, err error) {
	for range maxLooks {
		holder, held, err := c.held(name, life)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case held || err != nil:
			return holder, err
		default:
			err := jsonl.Retry(ctx, func(waited time.Duration) error { return c.removeExpired(waited, life, name) })
			if err != nil {
				return "", err
			}
		}
		if err := c.place(name, owner, life); err == nil {
			return owner, nil
		} else if !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	return "", fmt.Errorf("%s was made and removed by other processes %d times in a row", name, maxLooks)
}

// place makes the file of a claim; it fails with [fs.ErrExist] if the file exists.
func (c *claims) place(name, owner string, life time.Duration) (err error) {
	temp := claimsTemp + rand.Text()
	f, err := safefile.Open(c.root, temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	defer func() { _ = c.root.Remove(temp) }() // if this fails, the file is removed when it expires
	_, err = fmt.Fprintf(f, "%d %s", time.Now().Add(life).UnixMilli(), owner)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	err = c.root.Link(temp, name)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("make a hard link, which the file system of RELAY_DIR has to support: %w", err)
	}
	return err
}

// held returns the holder of a claim and whether the claim has not expired; the error is
// [fs.ErrNotExist] if there is no claim. An unreadable file, such as an empty one after a power
// cut, counts as held for life after it was written. No claim is held for longer, since a clock may
// have been wrong.
func (c *claims) held(name string, life time.Duration) (holder string, held bool, err error) {
	info, err := c.root.Lstat(name) // before it is read: a newer one may replace it in between
	if err != nil {
		return "", false, err
	}
	latest := info.ModTime().Add(life)
	data, err := safefile.ReadFile(c.root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", false, err
	}
	text, holder, _ := strings.Cut(string(data), " ")
	expires, broken := strconv.ParseInt(text, 10, 64)
	at := time.UnixMilli(expires)
	if err != nil || broken != nil || at.After(latest.Add(clockSlack)) {
		at = latest
	}
	return holder, time.Now().Before(at), nil
}

// removeExpired removes those files of names whose claims have expired. The lock prevents
// the removal of a claim that was made since. It returns [jsonl.ErrLocked] at once if
// another process has the lock.
func (c *claims) removeExpired(waited, life time.Duration, names ...string) error {
	lock := jsonl.Log{Folder: &c.folder, Name: claimsLock}
	defer lock.Close()
	return lock.Do(waited, func(int64) error {
		var wrong []error
		for _, name := range names {
			_, held, err := c.held(name, life)
			if err == nil && !held {
				err = c.root.Remove(name)
			}
			if !errors.Is(err, fs.ErrNotExist) {
				wrong = append(wrong, err)
			}
		}
		return errors.Join(wrong...)
	})
}

// prune removes expired claims, unless another process is doing so.
func (c *claims) prune() error {
	names, err := safefile.Names(c.root)
	if err != nil {
		return err
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		_, held, err := c.held(name, longestLife)
		return held || err != nil || name == claimsLock
	})
	if len(names) == 0 {
		return nil
	}
	if err := c.removeExpired(0, longestLife, names...); !errors.Is(err, jsonl.ErrLocked) {
		return err
	}
	return nil
}
