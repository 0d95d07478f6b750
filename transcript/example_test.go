package transcript_test

import (
	"fmt"
	"log"
	"os"

	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// Two sidecars share a folder. Both got the bot's answer; it is recorded once.
func Example() {
	dir, err := os.MkdirTemp("", "transcripts")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	answer := transcript.Entry{
		Role: relay.RoleAssistant, Content: "42", Sender: "agent_a",
		MessageID: "om_2", TS: 1795211093522,
	}
	for range 2 {
		sidecar, err := transcript.Open(dir, nil)
		if err != nil {
			log.Fatal(err)
		}
		defer sidecar.Close()
		question := transcript.Entry{
			Role: relay.RoleUser, Content: "6 * 7?", Sender: "Ann",
			MessageID: "om_1", TS: 1795211090000,
		}
		for _, e := range []transcript.Entry{question, answer} {
			added, err := sidecar.Append("feishu", "oc_x", e)
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println(e.MessageID, "added:", added)
		}
	}

	reader, err := transcript.Open(dir, &transcript.Options{ReadOnly: true})
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Close()
	entries, err := reader.Tail("feishu", "oc_x", 50)
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range entries {
		fmt.Printf("%s (%s): %s\n", e.Sender, e.Role, e.Content)
	}
	// Output:
	// om_1 added: true
	// om_2 added: true
	// om_1 added: false
	// om_2 added: false
	// Ann (user): 6 * 7?
	// agent_a (assistant): 42
}
