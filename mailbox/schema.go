package mailbox

import "embed"

//go:embed schemas/*.json
var schemaFiles embed.FS

// The schemas: an envelope as we write it, its task, an agent's card, and what
// POST /v1/mailbox/messages takes.
const (
	EnvelopeSchema = "envelope"
	TaskSchema     = "task"
	AgentSchema    = "agent"
	MessageSchema  = "message"
)

// SchemaNames lists the schemas.
func SchemaNames() []string {
	return []string{EnvelopeSchema, TaskSchema, AgentSchema, MessageSchema}
}

// Schema is the text of a JSON Schema (2020-12).
func Schema(name string) ([]byte, bool) {
	text, err := schemaFiles.ReadFile("schemas/" + name + ".json")
	return text, err == nil
}
