package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"feishu-relay/httpapi"
	"feishu-relay/internal/test/apitest"
	"feishu-relay/relay"
	"feishu-relay/transcript"
)

// Page shows what f.page returns, else all that f.tail does.
func (f *fakes) Page(channel, chatID string, q transcript.Query) (transcript.Page, error) {
	if f.page != nil {
		return f.page(q), nil
	}
	entries, err := f.tail(channel, chatID, q.Limit)
	return transcript.Page{Entries: entries}, err
}

// withRecord returns fakes with a real record of oc_x, and that.
func withRecord(t *testing.T, dir string) (*fakes, *transcript.Store) {
	t.Helper()
	store, err := transcript.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	f := newFakes()
	f.Transcripts = store
	// What stands before each entry, a person's message ends it.
	f.Depths = func(channel, chat string, entries []transcript.Entry) []int {
		all, err := store.Tail(channel, chat, 1000)
		if err != nil {
			t.Error(err)
		}
		depths, n := map[string]int{}, 0
		for _, e := range all {
			if n++; e.Role == "user" {
				n = 0
			}
			depths[e.MessageID] = n
		}
		out := make([]int, len(entries))
		for i, e := range entries {
			out[i] = depths[e.MessageID]
		}
		return out
	}
	return f, store
}

func said(t *testing.T, store *transcript.Store, entries ...transcript.Entry) {
	t.Helper()
	for _, e := range entries {
		if _, err := store.Append("feishu", "oc_x", e); err != nil {
			t.Fatal(err)
		}
	}
}

// shownPage is the answer of a page.
type shownPage struct {
	Channel string
	ChatID  string `json:"chat_id"`
	Entries []struct {
		transcript.Entry
		Depth int
	}
	Earlier string
}

func readPage(t *testing.T, f *fakes, query url.Values) (page shownPage) {
	t.Helper()
	w := call(t, f, "GET", "/v1/transcripts/feishu/oc_x?"+query.Encode(), "")
	if err := json.Unmarshal(w.Body.Bytes(), &page); w.Code != 200 || err != nil {
		t.Fatalf("%v: got %d %s", query, w.Code, w.Body)
	}
	return page
}

// readAll reads pages back to the beginning and returns what they show, as
// "id:depth", oldest first.
func readAll(t *testing.T, f *fakes, query url.Values) (all []string, pages int) {
	t.Helper()
	for {
		page := readPage(t, f, query)
		pages++
		for _, e := range slices.Backward(page.Entries) {
			all = append(all, fmt.Sprintf("%s:%d", e.MessageID, e.Depth))
		}
		if page.Earlier == "" {
			slices.Reverse(all)
			return all, pages
		}
		query.Set("before", page.Earlier)
	}
}

// A conversation of 400 messages, a person's every 40th, is read page by page
// with the depths it has as a whole; the same when it is searched.
func TestTranscriptPages(t *testing.T) {
	f, store := withRecord(t, t.TempDir())
	var all, needles []string
	depth := 0
	for i := range 400 {
		e := transcript.Entry{Role: "assistant", Content: "text", Sender: "agent_b", MessageID: fmt.Sprint("om_", i), TS: 1795211093522 + int64(i)}
		if depth++; i%40 == 0 {
			e.Role, e.Sender, depth = "user", "Ann", 0
		}
		name := fmt.Sprintf("%s:%d", e.MessageID, depth)
		if i%9 == 0 || i%50 < 3 {
			e.Content = "a Näedle"
			needles = append(needles, name)
		}
		all = append(all, name)
		said(t, store, e)
	}
	got, pages := readAll(t, f, url.Values{"limit": {"30"}})
	if diff := cmp.Diff(got, all); diff != "" || pages != 14 {
		t.Errorf("%d pages (-got +want):\n%s", pages, diff)
	}
	got, pages = readAll(t, f, url.Values{"limit": {"7"}, "q": {"NÄED"}})
	if diff := cmp.Diff(got, needles); diff != "" || pages != (len(needles)+6)/7 {
		t.Errorf("%d pages of a search (-got +want):\n%s", pages, diff)
	}
	if page := readPage(t, f, nil); len(page.Entries) != 50 || page.Channel != "feishu" || page.ChatID != "oc_x" {
		t.Errorf("the newest page has %d entries of %s %s", len(page.Entries), page.Channel, page.ChatID)
	}
	f.Depths = nil
	if w := call(t, f, "GET", "/v1/transcripts/feishu/oc_x", ""); strings.Contains(w.Body.String(), "depth") {
		t.Error("depths that were not counted are shown")
	}
}

func TestTranscriptPageRefusals(t *testing.T) {
	dir := t.TempDir()
	f, store := withRecord(t, dir)
	said(t, store, transcript.Entry{Role: "user", MessageID: "om_1"}, transcript.Entry{Role: "user", MessageID: "om_2"})
	before := readPage(t, f, url.Values{"limit": {"1"}}).Earlier
	ask := func(query string, status int, code string) {
		t.Helper()
		apitest.WantError(t, call(t, f, "GET", "/v1/transcripts/feishu/oc_x?"+query, ""), status, code)
	}
	ask("before=yesterday", 400, "invalid_request")
	ask("before="+before+"x", 400, "invalid_request")
	ask("q="+strings.Repeat("x", 201), 400, "invalid_request")
	ask("q=%ff", 400, "invalid_request")
	if page := readPage(t, f, url.Values{"q": {strings.Repeat("字", 66)}}); len(page.Entries) > 0 {
		t.Error("found a text that is in no message")
	}
	if err := os.Remove(filepath.Join(dir, "feishu_oc_x.jsonl")); err != nil {
		t.Fatal(err)
	}
	ask("before="+before, 410, "gone")
}

func TestTranscriptList(t *testing.T) {
	f := newFakes()
	f.Visible = func(_ string, chat relay.ChatID) bool { return chat != "oc_secret" }
	f.Group = func(channel string, chat relay.ChatID) httpapi.Group {
		return httpapi.Group{Name: fmt.Sprint(channel, " group ", chat), Limits: httpapi.GroupLimits{MaxDepth: 6, Threshold: 2}}
	}
	last := &transcript.Entry{Role: "user", Content: "hi", MessageID: "om_1"}
	var chats []transcript.Chat
	for i := range 700 {
		chats = append(chats, transcript.Chat{Channel: "feishu", ChatID: fmt.Sprint("oc_", i), Modified: time.UnixMilli(7), Last: last},
			transcript.Chat{Channel: "feishu", ChatID: "oc_secret", Last: last})
	}
	f.chats = func() ([]transcript.Chat, error) { return chats, nil }
	w := call(t, f, "GET", "/v1/transcripts", "")
	first, _, _ := strings.Cut(strings.TrimPrefix(w.Body.String(), `{"transcripts":[`), `,{"channel"`)
	if want := `{"channel":"feishu","chat_id":"oc_0","bytes":0,"modified":7,"name":"feishu group oc_0","limits":{"max_depth":6,"threshold":2,"check":false},` +
		`"last":{"role":"user","content":"hi","sender":"","message_id":"om_1","ts":0}}`; first != want {
		t.Errorf("got %s\nwant %s", first, want)
	}
	found, pages := map[string]bool{}, 0
	for query := ""; pages == 0 || query != ""; pages++ {
		var list httpapi.TranscriptList
		w := call(t, f, "GET", "/v1/transcripts?limit=300"+query, "")
		if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || len(list.Transcripts) > 300 {
			t.Fatalf("%v: %d chats on a page", err, len(list.Transcripts))
		}
		for _, c := range list.Transcripts {
			found[c.ChatID] = true
		}
		if query = ""; list.Earlier != "" {
			query = "&before=" + list.Earlier
		}
	}
	if len(found) != 700 || pages != 3 {
		t.Errorf("%d chats on %d pages", len(found), pages)
	}
	if strings.Contains(w.Body.String(), "oc_secret") {
		t.Error("a chat that is not the bot's is listed")
	}
}
