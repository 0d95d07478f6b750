package httpapi

import (
	"cmp"
	"context"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"feishu-relay/internal/web"
	"feishu-relay/relay"
)

// OpenFile opens a file of a message. Its error is a [*relay.Error] if the caller should
// get the reason.
type OpenFile func(ctx context.Context, id relay.MessageID, key string) (relay.FileContent, error)

// file serves GET /v1/messages/{message_id}/files/{key}: the bytes of a picture or file of
// a message, streamed from Feishu.
func (a *api) file(w http.ResponseWriter, r *http.Request) {
	id, key := r.PathValue("message_id"), r.PathValue("key")
	if err := cmp.Or(relay.CheckField("message_id", id), relay.CheckField("key", key)); err != nil {
		a.fail(w, r, err)
		return
	}
	ctl := http.NewResponseController(w)
	_ = ctl.SetReadDeadline(time.Time{}) // the server's deadline for the request would end a long transfer
	f, err := a.File(r.Context(), relay.MessageID(id), key)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	defer f.Body.Close()
	h := w.Header()
	h.Set("Content-Type", f.Served())
	h.Set("Content-Disposition", attachment(f.Name))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	if f.Size >= 0 {
		h.Set("Content-Length", strconv.FormatInt(f.Size, 10))
	}
	if r.Method == http.MethodHead {
		return
	}
	w.WriteHeader(http.StatusOK)
	if _, err := io.Copy(patient{w, ctl}, f.Body); err != nil {
		if r.Context().Err() == nil {
			a.Logger.Warn("a file was not sent to its end", "err", err)
		}
		panic(http.ErrAbortHandler) // so that the caller notices that it is incomplete
	}
	_ = ctl.SetWriteDeadline(time.Time{}) // the connection may serve further requests
}

// attachment is the Content-Disposition of a file that browsers should save and
// not display.
func attachment(name string) string {
	name = strings.Map(func(r rune) rune {
		if r == '/' || r == '\\' || r < ' ' || r == 0x7f {
			return '_'
		}
		return r
	}, name)
	if name != "" {
		if text := mime.FormatMediaType("attachment", map[string]string{"filename": name}); text != "" {
			return text
		}
	}
	return "attachment"
}

// patient is a writer that allows [web.WriteTimeout] for each write; after that its
// reader counts as gone.
type patient struct {
	w   http.ResponseWriter
	ctl *http.ResponseController
}

func (p patient) Write(data []byte) (int, error) {
	_ = p.ctl.SetWriteDeadline(time.Now().Add(web.WriteTimeout)) // supported by connections of net/http
	return p.w.Write(data)
}
