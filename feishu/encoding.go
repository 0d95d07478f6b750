package feishu

import (
	"bytes"
	"cmp"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/andybalholm/brotli"
)

// Decoder undoes a Content-Encoding: gzip, deflate, br, or none.
func Decoder(encoding string, data []byte) (r io.Reader, err error) {
	r = bytes.NewReader(data)
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "identity":
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
	return r, nil
}

// AcceptOnly leaves of the encodings that a request accepts those that are named.
func AcceptOnly(h http.Header, encodings ...string) {
	var kept []string
	all := true
	for _, list := range h["Accept-Encoding"] {
		for part := range strings.SplitSeq(list, ",") {
			name, _, _ := strings.Cut(part, ";")
			if slices.Contains(encodings, strings.ToLower(strings.TrimSpace(name))) {
				kept = append(kept, strings.TrimSpace(part))
			} else {
				all = false
			}
		}
	}
	if !all {
		h.Set("Accept-Encoding", cmp.Or(strings.Join(kept, ", "), "identity"))
	}
}
