package mcptools

import "github.com/modelcontextprotocol/go-sdk/mcp"

// reads is what a host is told of a tool that changes nothing. open: it shows
// what people and other agents wrote.
func reads(open bool) *mcp.ToolAnnotations {
	return &mcp.ToolAnnotations{ReadOnlyHint: true, DestructiveHint: new(false), IdempotentHint: true,
		OpenWorldHint: &open}
}

// acts is what a host is told of a tool that reaches other agents. None takes
// anything back, and each call counts.
func acts() *mcp.ToolAnnotations {
	return &mcp.ToolAnnotations{DestructiveHint: new(false), OpenWorldHint: new(true)}
}

func allTools() []tool {
	return []tool{
		taking(whoAmITool(), whoAmI),
		taking(listPeersTool(), listPeers),
		taking(sendToPeerTool(), sendToPeer),
		taking(sendTaskTool(), sendTask),
		taking(updateTaskTool(), updateTask),
		taking(readInboxTool(), readInbox),
		taking(readTranscriptTool(), readTranscript),
		taking(getFileTool(), getFile),
	}
}
