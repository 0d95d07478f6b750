package mcptools_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"feishu-relay/mcptools"
	"feishu-relay/relay"
)

type closing struct {
	io.Reader
	closed *int
}

func (c closing) Close() error { *c.closed++; return nil }

func TestGetFile(t *testing.T) {
	const most = 4 << 20
	closed, opened := 0, 0
	o := options(&fakeMailbox{})
	o.File = func(_ context.Context, id relay.MessageID, key string) (relay.FileContent, error) {
		f := relay.FileContent{File: relay.File{Key: key, Type: relay.FileImage, Name: "a.png"}, MediaType: "image/png", Size: -1}
		data := "picture of " + string(id)
		switch key {
		case "img_gone":
			return f, relay.Errorf(relay.CodeRecalled, "the message was recalled")
		case "img_fault":
			return f, errors.New("SECRET")
		case "img_known", "img_unknown":
			data = strings.Repeat("x", most+1)
			if key == "img_known" {
				f.Size = most + 1
			}
		case "img_most":
			data = strings.Repeat("x", most)
		}
		opened++
		f.Body = closing{strings.NewReader(data), &closed}
		return f, nil
	}
	c := serve(t, o)
	get := func(id, key string) *mcp.CallToolResult {
		t.Helper()
		r, err := c.session.CallTool(t.Context(), &mcp.CallToolParams{Name: "get_file", Arguments: object{"message_id": id, "key": key}})
		must(t, err)
		return r
	}
	var got struct {
		Name      string
		MediaType string `json:"media_type"`
		Bytes     int
	}
	first := get("om_1", "img_1")
	data, err := json.Marshal(first.StructuredContent)
	must(t, err)
	must(t, json.Unmarshal(data, &got))
	if text := first.Content[0].(*mcp.TextContent).Text; !strings.Contains(text, `"name":"a.png"`) || strings.Contains(text, "picture") {
		t.Errorf("the text says %q", text)
	}
	if got.Name != "a.png" || got.MediaType != "image/png" || got.Bytes != len("picture of om_1") {
		t.Errorf("got %+v", got)
	}
	e, ok := first.Content[1].(*mcp.EmbeddedResource)
	if !ok || string(e.Resource.Blob) != "picture of om_1" || e.Resource.MIMEType != "image/png" || e.Resource.URI != "feishu://messages/om_1/files/img_1" {
		t.Errorf("got %+v", e)
	}
	if e, ok := get("om_1", "img_most").Content[1].(*mcp.EmbeddedResource); !ok || len(e.Resource.Blob) != most {
		t.Error("a file of the most bytes is not returned")
	}
	for _, tt := range []struct{ id, key, want string }{
		{"om_1", "img_gone", "the message was recalled"},
		{"om_1", "img_fault", "the sidecar failed"},
		{"om_1", "img_known", "fetch it from the sidecar's local API: GET /v1/messages/om_1/files/img_known"},
		{"om_1", "img_unknown", "fetch it from the sidecar's local API: GET /v1/messages/om_1/files/img_unknown"},
		{"", "img_1", "message_id and key are needed"},
		{"om_1", "", "message_id and key are needed"},
		{"om_1", strings.Repeat("x", 2000), "key: want a string of at most 1024"},
		{"om\x00", "img_1", "control"},
	} {
		r := get(tt.id, tt.key)
		if text := r.Content[0].(*mcp.TextContent).Text; !r.IsError || !strings.Contains(text, tt.want) {
			t.Errorf("%q of %q: got %q, want an error with %q", tt.key, tt.id, text, tt.want)
		}
	}
	if opened != closed || opened == 0 {
		t.Errorf("%d files were opened and %d closed", opened, closed)
	}
	for _, tool := range mcptools.Tools() {
		if tool.Name == "get_file" {
			wantIn(t, tool.Description, "GET /v1/messages/{message_id}/files/{key}")
		}
	}
}
