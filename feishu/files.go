package feishu

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"feishu-relay/relay"
)

// maxKeys is the most files that [Files] returns.
const maxKeys = relay.MaxFiles

var markdownImage = regexp.MustCompile(`!\[[^\]\n]*\]\((img_[A-Za-z0-9_-]+)\)`)

// Keys returns the keys of [Files], and of a sticker.
func Keys(msgType, content string) []string {
	if msgType == "sticker" {
		msgType = ""
	}
	var keys []string
	for _, f := range Files(msgType, content) {
		keys = append(keys, f.Key)
	}
	return keys
}

// Files returns the images and files in a content, in order and each once: image_key,
// file_key with the file_name beside it, a card's img_key and the images in markdown. A
// sticker cannot be downloaded, so it is not a file (docs/feishu.md 5.4).
func Files(msgType, content string) []relay.File {
	if msgType == "text" || msgType == "sticker" || len(content) > maxContent || tooDeep([]byte(content)) {
		return nil
	}
	if msgType == "interactive" {
		var received struct {
			UserDSL string `json:"user_dsl"`
		}
		if json.Unmarshal([]byte(content), &received) == nil && received.UserDSL != "" {
			return Files("", received.UserDSL)
		}
	}
	f := fileFinder{in: json.NewDecoder(strings.NewReader(content))}
	for f.value("", &relay.File{}) {
	}
	return f.files
}

// fileFinder collects the files in a JSON text. In an invalid one it finds those before the error.
type fileFinder struct {
	in    *json.Decoder
	files []relay.File
}

// value reads a value, which is the member name of an object that may describe a file. It is false at the end of the
// text, and at an error.
func (f *fileFinder) value(name string, described *relay.File) bool {
	t, err := f.in.Token()
	if err != nil {
		return false
	}
	switch t := t.(type) {
	case json.Delim:
		return f.inside(t == '{')
	case string:
		switch name {
		case "image_key", "img_key":
			f.add(t, relay.FileImage)
		case "file_key":
			f.add(t, relay.FileOther)
			described.Key = t
		case "file_name":
			described.Name = fileName(t)
		case "content", "text":
			for _, m := range markdownImage.FindAllStringSubmatch(t, maxKeys) {
				f.add(m[1], relay.FileImage)
			}
		}
	}
	return true
}

// inside reads the rest of an object or a list.
func (f *fileFinder) inside(object bool) bool {
	var described relay.File
	for f.in.More() {
		name := ""
		if object {
			t, _ := f.in.Token() // the next call returns the same error
			name, _ = t.(string)
		}
		if !f.value(name, &described) {
			return false
		}
	}
	_, err := f.in.Token()
	if i := f.index(described.Key); i >= 0 && described.Name != "" {
		f.files[i].Name = described.Name
	}
	return err == nil
}

func (f *fileFinder) index(key string) int {
	return slices.IndexFunc(f.files, func(file relay.File) bool { return file.Key == key })
}

func (f *fileFinder) add(key, kind string) {
	if key != "" && checkIDs("", key) == nil && len(f.files) < maxKeys && f.index(key) < 0 {
		f.files = append(f.files, relay.File{Key: key, Type: kind})
	}
}

// fileName returns the name of a file in one line of bounded length.
func fileName(name string) string {
	return strings.ToValidUTF8(oneLine(name[:min(len(name), relay.MaxName)]), "")
}
