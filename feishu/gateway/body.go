package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"feishu-relay/feishu"
)

// body reads from one place and closes another.
type body struct {
	io.Reader
	io.Closer
}

// incoming is the body of a request; its errors are *senderError.
type incoming struct{ io.ReadCloser }

// senderError is an error of who sends a request, and not of Feishu.
type senderError struct{ error }

func (b incoming) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &senderError{err}
	}
	return n, err
}

// readUpTo reads at most limit bytes of r, which is size bytes long (-1: unknown),
// and holds them; see [feishu.ReadUpTo].
func (h *holding) readUpTo(r io.Reader, size int64, limit int) (data []byte, whole bool, err error) {
	first := freeBytes
	if size >= 0 && size < freeBytes {
		first = int(size) + 1 // its end is seen without another piece
	}
	had := first
	return feishu.ReadUpTo(r, first, limit, func(size int) bool {
		if size > had && !h.take(size-had) {
			return false
		}
		had = max(had, size)
		return true
	})
}

// again is a body of which readUpTo has read data: followed by nothing, by the
// rest of source, or by the error that ended it.
func again(source io.ReadCloser, data []byte, whole bool, err error) io.ReadCloser {
	first := bytes.NewReader(data)
	switch {
	case err != nil && !errors.Is(err, feishu.ErrNoRoom):
		return &body{io.MultiReader(first, failing{err}), source}
	case whole:
		return &body{first, source}
	}
	return &body{io.MultiReader(first, source), source}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

var errTooLarge = errors.New("unpacked, it is larger than is read here")

// unpack undoes a Content-Encoding; at most feishu.MaxAnswer bytes come out.
func (h *holding) unpack(encoding string, data []byte) ([]byte, error) {
	if encoding == "" {
		return data, nil
	}
	r, err := feishu.Decoder(encoding, data)
	if err != nil {
		return nil, err
	}
	out, whole, err := h.readUpTo(r, -1, feishu.MaxAnswer)
	switch {
	case err != nil:
		return nil, fmt.Errorf("unpack %s: %w", encoding, err)
	case !whole:
		return nil, errTooLarge
	}
	return out, nil
}

// hold gives r back the part of its body that was read. A body that was read
// whole may be sent once more, on a fresh connection: one that Feishu closed
// while it was idle would else fail a POST that was not even begun.
func hold(r *http.Request, data []byte, whole bool) *http.Request {
	out := r.WithContext(r.Context())
	out.Body = again(r.Body, data, whole, nil)
	if whole && len(r.Trailer) == 0 {
		out.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	}
	return out
}

// replace makes data the whole answer, a success.
func replace(resp *http.Response, data []byte) {
	resp.StatusCode, resp.Status = http.StatusOK, "200 OK"
	resp.Header.Del("Content-Encoding")
	resp.Header.Set("Content-Type", "application/json; charset=utf-8")
	resp.Header.Set("Content-Length", strconv.Itoa(len(data)))
	resp.ContentLength, resp.TransferEncoding, resp.Trailer = int64(len(data)), nil, nil
	resp.Body = &body{Reader: bytes.NewReader(data), Closer: resp.Body}
}
