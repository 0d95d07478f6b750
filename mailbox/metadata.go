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

// UnmarshalJSON reads camelCase and snake_case, and keeps what it does not know.
func (m *Metadata) UnmarshalJSON(raw []byte) error {
	var in object
	if err := json.Unmarshal(raw, &in); err != nil {
		return err
	}
	out := object{}
	newLevel(in, "", out, "", nil).metadata()
	ours, extra := object{}, object{}
	for name, value := range out {
		if isMetadataName(name) {
			ours[name] = value
		} else {
			extra[name] = value
		}
	}
	line, err := relay.Marshal(ours)
	if err != nil {
		return err
	}
	var k knownMetadata
	if err := json.Unmarshal(line, &k); err != nil {
		return err
	}
	*m = Metadata{
		TTL: k.TTL, RequiresAck: k.RequiresAck, RetryCount: k.RetryCount, MaxRetries: k.MaxRetries,
		Tags: orNil(k.Tags), Goal: k.Goal,
	}
	if k.CorrelationID != nil {
		m.CorrelationID = *k.CorrelationID
	}
	if len(extra) > 0 {
		m.Extra = extra
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

func orNil[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return list
}
