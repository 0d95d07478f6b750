package outgoing

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"feishu-relay/internal/safefile"
	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

// maxFile is the most bytes of a file that is read: an envelope and what is
// said of it. A bigger one is none of ours, and is set aside.
const maxFile = 2 << 20

// suffix of the files of each folder.
const (
	waits  = ".json"
	buried = ".msg.json"
)

// newName makes the name of a message's files, without suffix: they sort by
// time, those to one agent also within a millisecond.
func newName(at time.Time, to mailbox.AgentID) string {
	return fmt.Sprintf("%013d_%s_%06d%s", at.UnixMilli(), safefile.Name(string(to)), at.Nanosecond()%1e6,
		strings.ToLower(rand.Text()[:8]))
}

// timeOf is the time that a name was made of, in nanoseconds; 0 where it is none of ours.
func timeOf(name string) int64 {
	ms, _, _ := strings.Cut(name, "_")
	fine := name[strings.LastIndexByte(name, '_')+1:]
	ns, err := strconv.ParseInt(ms+fine[:min(6, len(fine))], 10, 64)
	if err != nil || len(ms) != 13 {
		return 0
	}
	return ns
}

// write replaces a file by v as JSON.
func write(root *os.Root, name string, v any) error {
	data, err := relay.Marshal(v)
	if err != nil {
		return err
	}
	return safefile.ReplaceFast(root, name, append(data, '\n'))
}

// errBroken says that a file holds something else than it should.
var errBroken = errors.New("broken")

func read[T any](root *os.Root, name string) (v T, err error) {
	f, err := safefile.Open(root, name, os.O_RDONLY)
	if err != nil {
		return v, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return v, err
	}
	return parse[T](data)
}

func parse[T any](data []byte) (v T, err error) {
	switch {
	case len(data) > maxFile:
		return v, fmt.Errorf("%w: more than %d bytes", errBroken, maxFile)
	case json.Unmarshal(data, &v) != nil: // its error may hold a piece of the text
		return v, fmt.Errorf("%w: not the JSON of a message", errBroken)
	}
	return v, nil
}

// names lists what one of the folders holds, in order of time. What a killed
// process was just writing is removed.
func names(root *os.Root, suffix string) (all []string, err error) {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		name := entry.Name()
		switch {
		case !entry.Type().IsRegular():
		case strings.HasSuffix(name, ".tmp"):
			_ = root.Remove(name)
		case strings.HasSuffix(name, suffix):
			all = append(all, strings.TrimSuffix(name, suffix))
		}
	}
	return all, nil
}

// setAside renames a file that cannot be read, for a person to look at.
func (b *Box) setAside(root *os.Root, name string, why error) error {
	b.opts.Logger.Warn("a file that cannot be read is set aside as *.broken", "folder", root.Name(), "file", name,
		"err", why)
	return root.Rename(name, name+".broken")
}

// remove removes a file that is needed no more. One that stays is found again
// at the next start, which costs a repeat.
func (b *Box) remove(root *os.Root, name string) {
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.opts.Logger.Warn("remove a settled message", "file", name, "err", err)
	}
}

// loadUnacked reads what waited when an earlier process ended. Dead letters are
// loaded before.
func (b *Box) loadUnacked() error {
	all, err := names(b.unacked, waits)
	if err != nil {
		return err
	}
	for _, name := range all {
		file := name + waits
		if b.isBuried(name) {
			b.remove(b.unacked, file) // it had just died
			continue
		}
		r, err := read[record](b.unacked, file)
		var e mailbox.Envelope
		if err == nil {
			e, err = b.decode(r.Envelope)
		}
		switch {
		case errors.Is(err, errBroken):
			err = b.setAside(b.unacked, file, err)
		case err == nil, errors.Is(err, errUnsigned):
			err = nil
			n := b.newEntry(name, e)
			n.record = r
			n.Envelope, n.RetryCount, n.due = nil, max(r.RetryCount, 0), b.opts.AckTimeout
			if last := time.Now().Add(maxPause); n.Next.After(last) {
				n.Next = last // the clock was set back
			}
			b.count++
			b.named = max(b.named, timeOf(name))
			b.insert(n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// loadDead reads which dead letters there are.
func (b *Box) loadDead() error {
	all, err := names(b.dead, buried)
	if err != nil {
		return err
	}
	for _, name := range all {
		d, err := b.exhume(name)
		switch {
		case errors.Is(err, errBroken):
			err = b.setAside(b.dead, name+buried, err)
		case err == nil, errors.Is(err, errUnsigned):
			err = nil
			b.graves = append(b.graves, grave{name, ref{d.ID, d.Envelope.To}, d.DeadAt})
		}
		if err != nil {
			return err
		}
	}
	slices.SortFunc(b.graves, func(x, y grave) int {
		return cmp.Or(x.at.Compare(y.at), cmp.Compare(x.name, y.name))
	})
	b.pruneGraves()
	return nil
}
