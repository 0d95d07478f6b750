package mention_test

import (
	"fmt"

	"feishu-relay/mention"
)

func Example() {
	d := mention.NewDirectory([]mention.Agent{
		{ID: "agent_a", Names: []string{"Ann"}},
		{ID: "agent_b", Names: []string{"BotB", "小B"}, IDs: []string{"ou_b", "cli_b"}},
	})
	for _, content := range []string{
		"请@小B看一下",
		"@Anna is not one of us, joe@ann.example neither",
		`<at user_id="ou_b">BotB</at> and @Ann: @all should read this`,
		"run `@Ann`, please",
		`{"title":"","content":[[{"tag":"at","user_id":"@_user_1"},{"tag":"text","text":" hi"}]]}`,
	} {
		found := d.Find(mention.Text{
			Content: content,
			Refs:    []mention.Ref{{Key: "@_user_9", Name: "Tom", OpenID: "ou_tom"}},
		})
		fmt.Println(found.Agents, found.All)
	}

	// What the sender's sidecar resolved counts where the text shows no name.
	fmt.Println(d.Find(mention.Text{Content: "a card", Refs: []mention.Ref{{AgentName: "agent_b"}}}).Agents)
	// Output:
	// [agent_b] false
	// [] false
	// [agent_b agent_a] true
	// [] false
	// [] false
	// [agent_b]
}
