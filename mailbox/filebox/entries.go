package filebox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"feishu-relay/mailbox"
	"feishu-relay/relay"
)

const (
	// maxRegistry and maxEntries bound the registry. One that is larger is neither
	// read nor written: that is an error that names the bound.
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

func newEntry(id mailbox.AgentID, raw []byte) (entry, error) {
	key, err := relay.Marshal(id)
	return entry{id: id, key: key, raw: raw}, err
}

// entries is a registry in the order of its file.
type entries []entry

var errNoRegistry = errors.New("it is no JSON object of agents")

// parseRegistry reads a registry. No content at all is an empty one; of two entries
// under one key the later counts, as everywhere.
func parseRegistry(data []byte) (entries, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if len(data) == 0 {
		return nil, nil
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, errNoRegistry
	}
	var list entries
	places := map[mailbox.AgentID]int{}
	for dec.More() {
		from := dec.InputOffset()
		t, err := dec.Token()
		id, ok := t.(string)
		if err != nil || !ok {
			return nil, errNoRegistry
		}
		e := entry{id: mailbox.AgentID(id), key: bytes.Clone(bytes.TrimLeft(data[from:dec.InputOffset()], " \t\r\n,"))}
		if err := dec.Decode(&e.raw); err != nil {
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
	if _, err := dec.Token(); err != nil { // the closing brace
		return nil, errNoRegistry
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errNoRegistry
	}
	return list, nil
}

var errTooMany = fmt.Errorf("the registry has more than %d entries: remove those of agents that are no more",
	maxEntries)

// format writes a registry, one entry after the other.
func (l entries) format() ([]byte, error) {
	if len(l) > maxEntries {
		return nil, errTooMany
	}
	var b bytes.Buffer
	b.WriteByte('{')
	for i, e := range l {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString("\n  ")
		b.Write(e.key)
		b.WriteString(": ")
		b.Write(e.raw)
	}
	b.WriteString("\n}\n")
	if b.Len() > maxRegistry {
		return nil, errTooBig
	}
	return b.Bytes(), nil
}

var errTooBig = fmt.Errorf("the registry has more than %d bytes: remove the entries of agents that are no more",
	maxRegistry)

// get returns an agent's entry, nil where there is none.
func (l entries) get(id mailbox.AgentID) json.RawMessage {
	for _, e := range l {
		if e.id == id {
			return e.raw
		}
	}
	return nil
}

// set replaces an agent's entry, or adds it at the end. It leaves l itself as it is.
func (l entries) set(e entry) entries {
	l = slices.Clone(l)
	for i := range l {
		if l[i].id == e.id {
			l[i].raw = e.raw
			return l
		}
	}
	return append(l, e)
}

// later reports whether entry a has a later heartbeat than b, where one that
// cannot be read is older than any; orSame is what counts when both are alike.
func later(id mailbox.AgentID, a, b json.RawMessage, orSame bool) bool {
	first, err1 := mailbox.DecodeCard(id, a)
	second, err2 := mailbox.DecodeCard(id, b)
	switch {
	case (err1 == nil) != (err2 == nil):
		return err1 == nil
	case err1 != nil || first.LastHeartbeat.Equal(second.LastHeartbeat):
		return orSame
	}
	return first.LastHeartbeat.After(second.LastHeartbeat)
}
