package relay_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"feishu-relay/relay"
)

func TestMetadataFiles(t *testing.T) {
	t.Parallel()
	want := []relay.File{{Key: "img_1", Type: relay.FileImage}, {Key: "file_1", Type: relay.FileOther, Name: "<a>.txt"}}
	m := relay.Metadata{}
	if err := m.SetFiles(want); err != nil || !slices.Equal(m.Files(), want) {
		t.Errorf("got %s, %v", m[relay.MetaFiles], err)
	}
	if err := (relay.Metadata)(nil).SetFiles(nil); err != nil {
		t.Error(err)
	}
	var many []relay.File
	for i := range 300 {
		many = append(many, relay.File{Key: fmt.Sprint("img_", i), Type: relay.FileImage})
	}
	all, err := json.Marshal(many)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, json string
		want       int
	}{
		{"more than are listed", string(all), relay.MaxFiles},
		{"none", `[]`, 0},
		{"of another form", `{"key":"img_1"}`, 0},
		{"names alone", `["img_1",{"key":"img_2","type":"image"}]`, 1},
		{"of no type", `[{"key":"img_1"},{"key":"img_1","type":"virus"}]`, 0},
		{"without a key", `[{"key":"","type":"image"},{"key":7,"type":"image"}]`, 0},
		{"an invalid key", `[{"key":"a\u0000","type":"image"},{"key":"` + strings.Repeat("x", relay.MaxID+1) + `","type":"image"}]`, 0},
		{"twice the same", `[{"key":"img_1","type":"image"},{"key":"img_1","type":"file"}]`, 1},
	} {
		if got := (relay.Metadata{relay.MetaFiles: json.RawMessage(tt.json)}).Files(); len(got) != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, len(got), tt.want)
		}
	}
	long := relay.Metadata{relay.MetaFiles: json.RawMessage(`[{"key":"k","type":"file","name":"` + strings.Repeat("x", 2000) + `"}]`)}
	if got := long.Files()[0].Name; len(got) != relay.MaxName {
		t.Errorf("a name of %d bytes", len(got))
	}
}

// What a browser would run is handed out as bytes.
func TestServed(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"image/png": "image/png", "IMAGE/JPEG; q=1": "image/jpeg", "image/svg+xml": "application/octet-stream",
		"text/html": "application/octet-stream", "": "application/octet-stream", "image": "application/octet-stream",
	} {
		if got := (&relay.FileContent{MediaType: given}).Served(); got != want {
			t.Errorf("%q is handed out as %q, want %q", given, got, want)
		}
	}
}
