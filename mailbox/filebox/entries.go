package filebox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

// maxRegistry and maxEntries bound the registry. One that is larger is neither
// read nor written: that is an error that names the bound.
const (
	maxRegistry = 8 << 20
	maxEntries  = 10_000
)

// entry is one agent's in the registry. Key and value stay as they were
// written, byte for byte.
type entry struct {
	id  mailbox.AgentID
	key json.RawMessage // a JSON string
	raw json.RawMessage
}

// beat is the heartbeat of e; one that cannot be read is older than any.
func (e entry) beat() time.Time {
	c, err := mailbox.DecodeCard(e.id, e.raw)
	if err != nil {
		return time.Time{}.Add(-1)
	}
	return c.LastHeartbeat
}

// entries is a registry in the order of its file.
type entries []entry

var (
	errNoRegistry = errors.New("it is not a JSON object of agents")
	errTooMany    = fmt.Errorf("the registry has more than %d entries: remove those of agents that left", maxEntries)
	errTooBig     = fmt.Errorf("the registry has more than %d bytes: remove the entries of agents that left", maxRegistry)
)

// parseRegistry reads a registry. No content at all is an empty one; of two entries
// under one key the later counts, as everywhere.
func parseRegistry(data []byte) (list entries, err error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if len(data) == 0 {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errNoRegistry
	}
	places := map[mailbox.AgentID]int{}
	for dec.More() {
		from := dec.InputOffset()
		t, err := dec.Token()
		id, ok := t.(string)
		e := entry{id: mailbox.AgentID(id), key: bytes.Clone(bytes.TrimLeft(data[from:dec.InputOffset()], " \t\r\n,"))}
		if err != nil || !ok || dec.Decode(&e.raw) != nil {
			return nil, errNoRegistry
		}
		if at, twice := places[e.id]; twice {
			list[at] = e
			continue
		}
		if len(list) == maxEntries {
			return nil, errTooMany
		}
		places[e.id] = len(list)
		list = append(list, e)
	}
	_, err = dec.Token() // the closing brace
	if _, end := dec.Token(); err != nil || !errors.Is(end, io.EOF) {
		return nil, errNoRegistry
	}
	return list, nil
}

// format writes a registry, one entry after the other.
func (l entries) format() ([]byte, error) {
	if len(l) > maxEntries {
		return nil, errTooMany
	}
	b := []byte{'{'}
	for i, e := range l {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, "\n  %s: %s", e.key, e.raw)
	}
	if b = append(b, "\n}\n"...); len(b) > maxRegistry {
		return nil, errTooBig
	}
	return b, nil
}

func (l entries) index(id mailbox.AgentID) int {
	return slices.IndexFunc(l, func(e entry) bool { return e.id == id })
}

// get returns an agent's entry.
func (l entries) get(id mailbox.AgentID) (entry, bool) {
	if i := l.index(id); i >= 0 {
		return l[i], true
	}
	return entry{}, false
}

// with replaces an agent's entry, or adds it at the end. It leaves l itself as it is.
func (l entries) with(e entry) entries {
	i := l.index(e.id)
	if l = slices.Clone(l); i < 0 {
		return append(l, e)
	}
	l[i].raw = e.raw
	return l
}

func newEntry(id mailbox.AgentID, raw []byte) entry {
	key, _ := relay.Marshal(id) // a string is always JSON
	return entry{id: id, key: key, raw: raw}
}
