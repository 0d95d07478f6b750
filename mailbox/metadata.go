package mailbox

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"feishu-relay/relay"
)

// knownMetadata is the part of the metadata that is ours.
type knownMetadata struct {
	CorrelationID *string  `json:"correlationId"`
	TTL           *int     `json:"ttl,omitempty"`
	RequiresAck   bool     `json:"requiresAck"`
	RetryCount    int      `json:"retryCount"`
	MaxRetries    *int     `json:"maxRetries,omitempty"`
	Tags          []string `json:"tags"`
	Goal          string   `json:"goal_id,omitempty"`
}

// metadataNames are our fields, each with the other names under which it is read.
var metadataNames = [][]string{
	{"correlationId", "correlation_id"},
	{"ttl"},
	{"requiresAck", "requires_ack"},
	{"retryCount", "retry_count"},
	{"maxRetries", "max_retries"},
	{"tags"},
	{"goal_id", "goalId"},
}

func isMetadataName(name string) bool {
	return slices.ContainsFunc(metadataNames, func(names []string) bool { return slices.Contains(names, name) })
}

// MarshalJSON writes our fields in the order of docs/protocol.md 6.1, then those of other
// programs in order of their names.
func (m Metadata) MarshalJSON() ([]byte, error) {
	line, err := relay.Marshal(knownMetadata{
		orNull(m.CorrelationID), m.TTL, m.RequiresAck, m.RetryCount, m.MaxRetries, orEmpty(m.Tags), m.Goal,
	})
	if err != nil {
		return nil, err
	}
	return appendFields(line, m.Extra, isMetadataName)
}

// UnmarshalJSON reads camelCase and snake_case, and keeps what it does not know. It does not hold
// values to their bounds, which [Decode] does.
func (m *Metadata) UnmarshalJSON(raw []byte) error {
	var in object
	if err := json.Unmarshal(raw, &in); err != nil {
		return err
	}
	f := newFields(in)
	f.unbounded = true
	if *m = f.metadata(); *f.err != nil {
		return *f.err
	}
	return nil
}

// appendFields adds the fields of more to an encoded object that has some, in
// order of their names and without those that skip names.
func appendFields(line []byte, more object, skip func(string) bool) ([]byte, error) {
	b := bytes.NewBuffer(slices.Clip(bytes.TrimSuffix(line, []byte{'}'}))) // line itself stays as it is
	for _, name := range slices.Sorted(maps.Keys(more)) {
		if skip(name) {
			continue
		}
		key, err := relay.Marshal(name)
		if err != nil {
			return nil, err
		}
		value, err := relay.Marshal(more[name])
		if err != nil {
			return nil, err
		}
		b.WriteByte(',')
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}
