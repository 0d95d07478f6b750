package mailbox_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"feishu-relay/mailbox"
)

// What a refusal says goes into logs and back to the sender.
func TestRefusalsAreShortWhateverWasSent(t *testing.T) {
	const longest = 1 << 10
	huge := strings.Repeat("好", 10<<10)
	values := map[string]any{"a text": huge, "a number": 1e300, "a list": []any{huge, map[string]any{huge: huge}},
		"an object": map[string]any{huge: huge, "type": huge, "state": huge, "channel": huge, "parts": []any{map[string]any{huge: huge}}},
		"nested":    map[string]any{"parts": []any{map[string]any{"type": "data", "data": map[string]any{huge: 1}}, huge}}}
	fields := []string{"id", "from", "to", "timestamp", "type", "priority", "ttl", "trace", "task", "content", "callback",
		"reply_to", "metadata", "tpye", "correlation_id", huge}
	for _, field := range fields {
		for kind, value := range values {
			e := map[string]any{"id": "m1", "from": "writer", "to": "coder", "timestamp": "2026-04-26T10:00:00Z", "content": "hi"}
			e[field] = value
			raw, err := json.Marshal(e)
			if err != nil {
				t.Fatal(err)
			}
			for name, decode := range map[string]func([]byte) (mailbox.Envelope, error){
				"Decode": mailbox.Decode, "DecodeDraft": mailbox.DecodeDraft,
				"DecodeLine": func(raw []byte) (mailbox.Envelope, error) { return mailbox.DecodeLine(raw, "writer", ten) },
			} {
				got, err := decode(raw)
				if err == nil {
					continue
				}
				if size := len(err.Error()) + len(fmt.Sprint(got)); size > longest {
					t.Errorf("%s of %.20s as %s: %d bytes, %.200v", name, field, kind, size, err)
				}
			}
		}
	}
}
