package feishusim

import (
	"cmp"
	"io"
	"mime"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Limits of uploads. Feishu accepts images of 10 MB and files of 30 MB; here
// they may be larger, to test large transfers.
const (
	maxFile       = 128 << 20
	maxFilesBytes = 256 << 20 // of all files; beyond it the oldest are dropped
	maxDownload   = 100 << 20 // of a file in a message (docs/feishu.md 5.4)
)

// Prefixes of keys.
const (
	imagePrefix = "img_v3_"
	filePrefix  = "file_v3_"
)

var mediaRoutes = []route{
	{pattern: "POST /open-apis/im/v1/images", scopes: mediaScopes, upload: true, run: uploader("image", imagePrefix, "image_key")},
	{pattern: "POST /open-apis/im/v1/files", scopes: mediaScopes, upload: true, run: uploader("file", filePrefix, "file_key")},
	{pattern: "GET " + messagesPath + "/{id}/resources/{key}", scopes: resourceScopes, run: onMessage(readResource)},
}

// file is an uploaded file.
type file struct {
	key, name string
	data      []byte
}

// uploader returns a route that stores the multipart part called field.
func uploader(field, prefix, answer string) func(*call) (any, error) {
	return func(c *call) (any, error) {
		part, header, err := c.r.FormFile(field)
		if err != nil || header.Size == 0 {
			return nil, errNoFile
		}
		data, err := io.ReadAll(part)
		if err != nil {
			return nil, errNoFile
		}
		f := c.s.keepFile(prefix, cmp.Or(c.r.FormValue("file_name"), header.Filename), data)
		return map[string]any{answer: f.key}, nil
	}
}

// keepFile stores a file. The caller holds s.mu.
func (s *Server) keepFile(prefix, name string, data []byte) *file {
	f := &file{newID(prefix, 16), name, data}
	s.files = append(s.files, f)
	s.fileBytes += len(data)
	for s.fileBytes > maxFilesBytes {
		s.fileBytes -= len(s.files[0].data)
		s.files = s.files[1:]
	}
	return f
}

// file finds a file by its key. The caller holds s.mu.
func (s *Server) file(key string) *file {
	i := slices.IndexFunc(s.files, func(f *file) bool { return f.key == key })
	if i < 0 {
		return nil
	}
	return s.files[i]
}

// AddFile stores a file for a user to send with [Server.Post]: with the key as
// Utterance.File, or in its Content.
func (s *Server) AddFile(name string, data []byte) (key string) {
	prefix := filePrefix
	if strings.HasPrefix(mime.TypeByExtension(filepath.Ext(name)), "image/") {
		prefix = imagePrefix
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keepFile(prefix, name, data).key
}

// readResource returns a file of a message.
func readResource(c *call, m *message, _ *struct{}) (any, error) {
	key := c.r.PathValue("key")
	kind := "file"
	if strings.HasPrefix(key, imagePrefix) {
		kind = "image"
	}
	f, asked := c.s.file(key), c.query("type")
	switch {
	case asked != "image" && asked != "file":
		return nil, errNoFile
	case m.Type == "sticker":
		return nil, errFileType
	case f == nil, asked != kind, !strings.Contains(m.Content, `"`+key+`"`):
		return nil, errFile
	case len(f.data) > maxDownload:
		return nil, errFileBig
	}
	return f, nil
}

// serve sends the file; it is not an error if the caller leaves early.
func (f *file) serve(w http.ResponseWriter) {
	w.Header().Set("Content-Type", http.DetectContentType(f.data))
	w.Header().Set("Content-Length", strconv.Itoa(len(f.data)))
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": f.name}))
	_, _ = w.Write(f.data)
}
