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

// joined is first followed by the rest of source.
func joined(first io.Reader, source io.ReadCloser) io.ReadCloser {
	return &body{Reader: io.MultiReader(first, source), Closer: source}
}

// readUpTo reads at most limit bytes. whole is false when there is more.
func readUpTo(r io.Reader, limit int) (data []byte, whole bool, err error) {
	data, err = io.ReadAll(io.LimitReader(r, int64(limit)+1))
	return data, err == nil && len(data) <= limit, err
}

// tail is what follows a body that was read in part: the rest of it, or the
// error that ended it, so that the bot's own reading ends the same way.
func tail(source io.Reader, err error) io.Reader {
	if err != nil {
		return failing{err}
	}
	return source
}

func ifNot(done bool, r io.Reader) io.Reader {
	if done {
		return bytes.NewReader(nil)
	}
	return r
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

var errTooLarge = errors.New("unpacked, it is larger than is read here")

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
	out, whole, err := readUpTo(r, maxAnswer)
	switch {
	case err != nil:
		return nil, fmt.Errorf("unpack %s: %w", encoding, err)
	case !whole:
		return nil, errTooLarge
	}
	return out, nil
}
