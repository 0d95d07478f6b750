package relay

import (
	"encoding/json"
	"io"
	"mime"
	"slices"
	"strings"
)

// MetaFiles is the key of [Metadata] that lists the files of a message, as [File]s.
const MetaFiles = "files"

// Types of a [File].
const (
	FileImage = "image"
	FileOther = "file" // documents, audio, video
)

// MaxFiles is the most files of a message; further ones are not listed.
const MaxFiles = 100

// File is a picture or another file of a message.
type File struct {
	Key  string `json:"key"`
	Type string `json:"type"`           // [FileImage] or [FileOther]
	Name string `json:"name,omitempty"` // as its sender called it, at most [MaxName] bytes
}

// Files returns the files that m lists, at most [MaxFiles]. Invalid entries are
// left out: other programs write these lines too.
func (m Metadata) Files() []File {
	raw, ok := m[MetaFiles]
	var each []json.RawMessage
	if !ok || json.Unmarshal(raw, &each) != nil {
		return nil
	}
	var files []File
	for _, one := range each {
		var f File
		if json.Unmarshal(one, &f) != nil || len(files) >= MaxFiles || f.Key == "" || CheckID(f.Key) != nil ||
			f.Type != FileImage && f.Type != FileOther ||
			slices.ContainsFunc(files, func(o File) bool { return o.Key == f.Key }) {
			continue
		}
		f.Name = cutName(f.Name)
		files = append(files, f)
	}
	return files
}

// SetFiles lists files in m. Without files it leaves m unchanged.
func (m Metadata) SetFiles(files []File) error {
	if len(files) == 0 {
		return nil
	}
	list, err := Marshal(files)
	if err != nil {
		return err
	}
	m[MetaFiles] = list
	return nil
}

// FileContent is the content of a [File], still to be read. The caller closes
// Body.
type FileContent struct {
	File
	MediaType string // as the platform reports it; "" unknown
	Size      int64  // bytes of Body; -1 unknown
	Body      io.ReadCloser
}

// Served returns the media type under which c is served: its own if it is a bitmap
// picture, else application/octet-stream. A browser would run scripts in files of other
// types, SVG included.
func (c *FileContent) Served() string {
	kind, _, err := mime.ParseMediaType(c.MediaType)
	if err != nil || !strings.HasPrefix(kind, "image/") || strings.Contains(kind, "xml") {
		return "application/octet-stream"
	}
	return kind
}
