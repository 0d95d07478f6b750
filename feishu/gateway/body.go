package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"feishu-relay/feishu"
)

// body reads from one place and closes another.
type body struct {
	io.Reader
	io.Closer
}

// errNoRoom says that the budget has no room for more of a body.
var errNoRoom = errors.New("too much is held of other calls")

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
// and holds them. whole is false when there is more, which then is not read: the
// error is errNoRoom where h has no room for it.
func (h *holding) readUpTo(r io.Reader, size int64, limit int) (data []byte, whole bool, err error) {
	first := freeBytes
	if size >= 0 && size < freeBytes {
		first = int(size) + 1 // its end is seen without another piece
	}
	data = make([]byte, 0, min(first, limit+1))
	for {
		n, err := r.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case errors.Is(err, io.EOF):
			return data, len(data) <= limit, nil
		case err != nil:
			return data, false, err
		case len(data) > limit:
			return data, false, nil
		case len(data) == cap(data):
			// Not what the sender announced: memory is for what has come.
			more := min(cap(data), limit+1-cap(data))
			if !h.take(more) {
				return data, false, errNoRoom
			}
			data = append(make([]byte, 0, cap(data)+more), data...)
		}
	}
}

// again is a body of which readUpTo has read data: followed by nothing, by the
// rest of source, or by the error that ended it.
func again(source io.ReadCloser, data []byte, whole bool, err error) io.ReadCloser {
	first := bytes.NewReader(data)
	switch {
	case err != nil && !errors.Is(err, errNoRoom):
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
