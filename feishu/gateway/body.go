package gateway

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/andybalholm/brotli"
)

// body reads from one place and closes another.
type body struct {
	io.Reader
	io.Closer
}

// readUpTo reads at most limit bytes of r, which is size bytes long (-1:
// unknown). whole is false when there is more.
func readUpTo(r io.Reader, size int64, limit int) (data []byte, whole bool, err error) {
	var b bytes.Buffer
	if size > 0 && size <= int64(limit) {
		b.Grow(int(size) + bytes.MinRead)
	}
	_, err = b.ReadFrom(io.LimitReader(r, int64(limit)+1))
	return b.Bytes(), err == nil && b.Len() <= limit, err
}

// again is a body of which readUpTo has read data: followed by nothing, by the
// rest of source, or by the error that ended it.
func again(source io.ReadCloser, data []byte, whole bool, err error) io.ReadCloser {
	first := bytes.NewReader(data)
	switch {
	case err != nil:
		return &body{io.MultiReader(first, failing{err}), source}
	case whole:
		return &body{first, source}
	}
	return &body{io.MultiReader(first, source), source}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

var errTooLarge = errors.New("unpacked, it is larger than is read here")

// readable reports whether unpack knows an encoding.
func readable(encoding string) bool {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "identity", "gzip", "x-gzip", "deflate", "br":
		return true
	}
	return false
}

// unpack undoes a Content-Encoding; at most maxAnswer bytes come out.
func unpack(encoding string, data []byte) ([]byte, error) {
	var r io.Reader = bytes.NewReader(data)
	var err error
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "identity":
		return data, nil
	case "gzip", "x-gzip":
		r, err = gzip.NewReader(r)
	case "deflate":
		// The name stands for zlib, but some servers send the bare stream.
		if r, err = zlib.NewReader(bytes.NewReader(data)); err != nil {
			r, err = flate.NewReader(bytes.NewReader(data)), nil
		}
	case "br":
		r = brotli.NewReader(r)
	default:
		return nil, fmt.Errorf("unknown encoding %.20q", encoding)
	}
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", encoding, err)
	}
	out, whole, err := readUpTo(r, -1, maxAnswer)
	switch {
	case err != nil:
		return nil, fmt.Errorf("unpack %s: %w", encoding, err)
	case !whole:
		return nil, errTooLarge
	}
	return out, nil
}
