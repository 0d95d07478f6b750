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

// No result of safefile.Name begins with a dot: such a file is no claim.
const (
	claimsDir  = "claims"
	claimsLock = ".lock"
	claimsTemp = ".new-"

	pruneEvery = time.Minute // expired claims of other keys are removed, at most so often
	// longestLife is of claims of other keys, whose life is not known when they are removed.
	longestLife = 366 * 24 * time.Hour
	// clockSlack is how far the clock of the file system may be behind ours.
	clockSlack = time.Minute
)

// errClaimsLocked is the error of a Claim that could not remove an expired claim in time.
var errClaimsLocked = fmt.Errorf("%s was locked by another process for %v, and an expired claim is in the way",
	filepath.Join(claimsDir, claimsLock), publishTimeout)

// Claim makes the file of key in RELAY_DIR/claims, as [relay.Claimer] says. The file
// holds when it expires, in Unix milliseconds, and behind a space who holds it. It is
// written under another name and linked to its own, which works for one process alone, without a lock.
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

// claims is the folder of the claims, for one call.
type claims struct {
	root   *os.Root
	folder safefile.Folder // the same, for the lock
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
	return "", fmt.Errorf("%s came and went %d times in a row", name, maxLooks)
}

// place makes the file of a claim; it fails with [fs.ErrExist] where there is one.
func (c *claims) place(name, owner string, life time.Duration) (err error) {
	temp := claimsTemp + rand.Text()
	f, err := safefile.Open(c.root, temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	defer func() { _ = c.root.Remove(temp) }() // what is left is removed when it expires
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

// held is who holds the claim of a file, and whether it has not expired; [fs.ErrNotExist] says that
// there is none. A file that cannot be read, as a power cut leaves an empty one, is held
// for life after it was written; and none for longer: a clock may have been wrong.
func (c *claims) held(name string, life time.Duration) (holder string, held bool, err error) {
	info, err := c.root.Lstat(name) // before it is read: it may be replaced between by a newer one
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

// removeExpired removes those files of names whose claims have expired. The lock keeps a
// claim that was made since from being removed. It returns [jsonl.ErrLocked] at once while
// another process has it.
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

// prune removes what has expired, or nothing while another process does.
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
