package send

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"feishu-relay/feishu"
)

// fake is as much of Feishu as a sender sees.
type fake struct {
	*httptest.Server
	t      testing.TB
	send   func(w http.ResponseWriter, c call) bool // true: it answered
	tokens atomic.Int64

	turn  sync.Mutex
	mu    sync.Mutex
	calls []call // accepted or refused sends
	seq   int
}

// call is a request to send.
type call struct {
	path, token, uuid, kind, content, chat string
	inThread, tellsThread                  bool   // reply_in_thread, and whether it is there
	text                                   string // of content
	size                                   int    // of the request
}

func newFake(t testing.TB) *fake {
	f := &fake{t: t}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /open-apis/auth/v3/tenant_access_token/internal", func(w http.ResponseWriter, _ *http.Request) {
		respond(w, 200, fmt.Sprintf(`{"code":0,"msg":"ok","tenant_access_token":"t-%d","expire":7200}`, f.tokens.Add(1)))
	})
	mux.HandleFunc("POST /open-apis/im/v1/messages", f.message)
	mux.HandleFunc("POST /open-apis/im/v1/messages/{id}/reply", f.message)
	f.Server = httptest.NewServer(mux)
	t.Cleanup(f.Close)
	return f
}

func respond(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	io.WriteString(w, body)
}

func (f *fake) message(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body)
	var body struct {
		ReceiveID     string `json:"receive_id"`
		MsgType       string `json:"msg_type"`
		Content       string `json:"content"`
		UUID          string `json:"uuid"`
		ReplyInThread *bool  `json:"reply_in_thread"`
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		f.t.Error(err)
	}
	c := call{
		path: r.URL.RequestURI(), token: r.Header.Get("Authorization"), uuid: body.UUID, kind: body.MsgType,
		content: body.Content, chat: body.ReceiveID, size: len(raw),
	}
	if c.tellsThread = body.ReplyInThread != nil; c.tellsThread {
		c.inThread = *body.ReplyInThread
	}
	var text struct {
		Text string `json:"text"`
	}
	var post struct {
		ZhCN struct {
			Content [][]struct{ Tag, Text string }
		} `json:"zh_cn"`
	}
	if body.MsgType == "text" && json.Unmarshal([]byte(body.Content), &text) == nil {
		c.text = text.Text
	} else if json.Unmarshal([]byte(body.Content), &post) == nil {
		c.text = post.ZhCN.Content[0][0].Text
	}
	f.mu.Lock()
	f.calls = append(f.calls, c)
	f.seq++
	seq := f.seq
	f.mu.Unlock()
	if f.send != nil && f.answers(w, c) {
		return
	}
	respond(w, 200, fmt.Sprintf(`{"code":0,"msg":"success","data":{"message_id":"om_%d","msg_type":%q,"create_time":"1615380573411",`+
		`"chat_id":"oc_1","sender":{"id":"cli_a","id_type":"app_id","sender_type":"app"},"body":{"content":%q}}}`,
		seq, c.kind, c.content))
}

// answers calls send, for one call at a time.
func (f *fake) answers(w http.ResponseWriter, c call) bool {
	f.turn.Lock()
	defer f.turn.Unlock()
	return f.send(w, c)
}

func (f *fake) sends() []call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// sender returns one that talks to f, with short waits.
func (f *fake) sender(t testing.TB) *Sender {
	s := New(feishu.NewAPI(f.URL, "cli_a", "secret", feishu.WithHTTPClient(f.Client())), book(t), func(feishu.Counted) {})
	s.backoff = time.Millisecond
	return s
}

func book(t testing.TB) *feishu.Directory {
	b := feishu.NewDirectory(nil, feishu.NewAPI("", "", ""), nil)
	t.Cleanup(func() { b.Close() })
	return b
}
