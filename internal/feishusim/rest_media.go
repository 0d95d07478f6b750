package feishusim

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Limits of uploads. Feishu accepts images of 10 MB and files of 30 MB; here
// they may be larger, to test large transfers.
const (
	maxFile       = 128 << 20
	maxFiles      = 500     // beyond it the oldest are dropped
	maxFilesBytes = 1 << 30 // of all files, in a temporary folder; beyond it the oldest are dropped
	maxFormField  = 4 << 10
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
	{pattern: "GET /open-apis/im/v1/images/{key}", scopes: mediaScopes, run: ownFile},
	{pattern: "GET /open-apis/im/v1/files/{key}", scopes: mediaScopes, run: ownFile},
	{pattern: "GET " + messagesPath + "/{id}/resources/{key}", scopes: resourceScopes, run: readResource},
}

// file is an uploaded file, on disk.
type file struct {
	key, name, app, path, kind string
	size                       int64
}

type fileStore struct {
	dir   string // created with the first file
	files []*file
	bytes int64
}

func (f *fileStore) find(key string) *file {
	for _, one := range f.files {
		if one.key == key {
			return one
		}
	}
	return nil
}

// uploader returns a route that stores the multipart part called field.
func uploader(field, prefix, answer string) func(*call) (any, error) {
	return func(c *call) (any, error) {
		parts, err := c.r.MultipartReader()
		if err != nil {
			return nil, errNoFile
		}
		var kept *file
		name := ""
		for {
			p, err := parts.NextPart()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return nil, errNoFile
			}
			switch p.FormName() {
			case "file_name":
				b, err := io.ReadAll(io.LimitReader(p, maxFormField))
				if err != nil {
					return nil, errNoFile
				}
				name = string(b)
			case field:
				if kept, err = c.s.store(p, prefix, c.app.ID); err != nil {
					return nil, err
				}
				kept.name = p.FileName()
			}
		}
		if kept == nil || kept.size == 0 {
			return nil, errNoFile
		}
		if name != "" {
			kept.name = name
		}
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		c.s.files.add(kept)
		return map[string]any{answer: kept.key}, nil
	}
}

// store writes a file to the temporary folder.
func (s *Server) store(from io.Reader, prefix, app string) (_ *file, err error) {
	dir, err := s.folder()
	if err != nil {
		return nil, err
	}
	f := &file{key: newID(prefix, 16), app: app}
	f.path = filepath.Join(dir, f.key)
	out, err := os.OpenFile(f.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err = errors.Join(err, out.Close()); err != nil {
			err = errors.Join(err, os.Remove(f.path))
		}
	}()
	head := make([]byte, 512)
	n, err := io.ReadFull(from, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, errNoFile
	}
	f.kind = http.DetectContentType(head[:n])
	if _, err = out.Write(head[:n]); err != nil {
		return nil, err
	}
	more, err := io.Copy(out, io.LimitReader(from, maxFile))
	if err != nil {
		return nil, errNoFile
	}
	if f.size = int64(n) + more; f.size > maxFile {
		return nil, errFileSize
	}
	return f, nil
}

func (s *Server) folder() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return "", ErrClosed
	}
	if s.files.dir == "" {
		dir, err := os.MkdirTemp("", "feishusim-")
		if err != nil {
			return "", err
		}
		s.files.dir = dir
	}
	return s.files.dir, nil
}

func (f *fileStore) add(one *file) {
	f.files = append(f.files, one)
	f.bytes += one.size
	for len(f.files) > maxFiles || f.bytes > maxFilesBytes {
		_ = os.Remove(f.files[0].path) // if it fails, Close removes the folder
		f.bytes -= f.files[0].size
		f.files = f.files[1:]
	}
}

// AddFile stores a file for a user to send with [Server.Post]: with the key as
// Utterance.File, or in its Content.
func (s *Server) AddFile(name string, data []byte) (key string, err error) {
	prefix := filePrefix
	if strings.HasPrefix(mime.TypeByExtension(filepath.Ext(name)), "image/") {
		prefix = imagePrefix
	}
	f, err := s.store(strings.NewReader(string(data)), prefix, "")
	if err != nil {
		return "", err
	}
	f.name = name
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files.add(f)
	return f.key, nil
}

// ownFile returns a file that the app uploaded.
func ownFile(c *call) (any, error) {
	f := c.s.files.find(c.r.PathValue("key"))
	if f == nil || f.app != c.app.ID {
		return nil, errNoFile
	}
	return &download{f}, nil
}

// readResource returns a file of a message.
func readResource(c *call) (any, error) {
	m, err := c.message(errMessageID)
	if err != nil {
		return nil, err
	}
	key := c.r.PathValue("key")
	image := strings.HasPrefix(key, imagePrefix)
	switch c.query("type") {
	case "image", "file":
	default:
		return nil, errNoFile
	}
	f := c.s.files.find(key)
	switch {
	case m.Type == "sticker":
		return nil, errFileType
	case f == nil, image != (c.query("type") == "image"), !strings.Contains(m.Content, `"`+key+`"`):
		return nil, errFile
	case f.size > maxDownload:
		return nil, errFileBig
	}
	return &download{f}, nil
}

// serve sends the file; it is not an error if the caller leaves early.
func (f *file) serve(w http.ResponseWriter) {
	in, err := os.Open(f.path)
	if err != nil {
		writeJSON(w, errNoFile.status, errNoFile.body("", ""))
		return
	}
	defer in.Close()
	w.Header().Set("Content-Type", f.kind)
	w.Header().Set("Content-Length", strconv.FormatInt(f.size, 10))
	w.Header().Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": f.name}))
	w.WriteHeader(http.StatusOK)
	_, _ = io.Copy(w, in)
}
