package feishu

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"time"

	"feishu-relay/relay"
)

// fileStall is how long Feishu may send nothing of a file.
const fileStall = 30 * time.Second

var (
	errSlow  = fmt.Errorf("Feishu did not answer within %v", callTimeout)
	errStall = fmt.Errorf("Feishu sent nothing of the file for %v", fileStall)
)

// File opens a file of a message: GET im/v1/messages/{id}/resources/{key}
// (docs/feishu.md 5.4). Its bytes are read from Feishu as the caller reads them; it ends
// with ctx, and where Feishu sends nothing for 30 s. The caller closes the Body.
func (a *API) File(ctx context.Context, id relay.MessageID, f relay.File) (relay.FileContent, error) {
	path := messagePath(id) + "/resources/" + url.PathEscape(f.Key)
	var content relay.FileContent
	err := a.withToken(func() (token string, err error) {
		content, token, err = a.open(ctx, path, f.Type)
		return token, err
	})
	if err != nil {
		return relay.FileContent{}, fmt.Errorf("GET %s: %w", path, err)
	}
	f.Name = cmp.Or(f.Name, content.Name)
	content.File = f
	return content, nil
}

// open makes one call that is answered with a file, and returns the token it used.
func (a *API) open(ctx context.Context, path, fileType string) (_ relay.FileContent, token string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	slow := time.AfterFunc(callTimeout, func() { cancel(errSlow) })
	defer func() {
		if err != nil {
			slow.Stop()
			if cause := context.Cause(ctx); errors.Is(cause, errSlow) {
				err = cause
			}
			cancel(nil)
		}
	}()
	if token, err = a.token(ctx); err != nil {
		return relay.FileContent{}, "", err
	}
	req, err := a.request(ctx, http.MethodGet, path, url.Values{"type": {fileType}}, token, nil)
	if err != nil {
		return relay.FileContent{}, token, err
	}
	req.Header.Set("Accept-Encoding", "identity") // so that the size is known
	res, err := a.client.Do(req)
	if err != nil {
		return relay.FileContent{}, token, WithoutURL(err)
	}
	if res.StatusCode != http.StatusOK {
		defer res.Body.Close()
		_, err := readBody(res)
		if err == nil {
			err = fmt.Errorf("HTTP %d", res.StatusCode)
		}
		return relay.FileContent{}, token, err
	}
	slow.Stop()
	_, header, err := mime.ParseMediaType(res.Header.Get("Content-Disposition"))
	name := ""
	if err == nil { // else the file has no name
		name = fileName(header["filename"])
	}
	return relay.FileContent{File: relay.File{Name: name}, MediaType: res.Header.Get("Content-Type"),
		Size: res.ContentLength, Body: &fileBody{res.Body, ctx, cancel}}, token, nil
}

// fileBody is an answer that is read while it comes.
type fileBody struct {
	io.ReadCloser
	ctx    context.Context // of the call: its cause says why a read failed
	cancel context.CancelCauseFunc
}

func (b *fileBody) Read(p []byte) (int, error) {
	stall := time.AfterFunc(fileStall, func() { b.cancel(errStall) })
	defer stall.Stop()
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		if cause := context.Cause(b.ctx); cause != nil {
			err = cause
		}
	}
	return n, err
}

func (b *fileBody) Close() error {
	defer b.cancel(nil)
	return b.ReadCloser.Close()
}
