package feishu

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"feishu-relay/relay"
)

// maxKeys is how many files [Files] returns; the rest of a longer content is not
// looked at.
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
// sticker cannot be fetched, so it is not a file (docs/feishu.md 5.4).
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
	var files []relay.File
	at := func(key string) int {
		return slices.IndexFunc(files, func(f relay.File) bool { return f.Key == key })
	}
	add := func(key, kind string) {
		if key != "" && checkIDs("", key) == nil && len(files) < maxKeys && at(key) < 0 {
			files = append(files, relay.File{Key: key, Type: kind})
		}
	}
	d := json.NewDecoder(strings.NewReader(content))
	name := "" // of the field whose value comes next
	var open []opened
	isName := false
	for {
		t, err := d.Token()
		if err != nil {
			return files
		}
		if text, ok := t.(string); ok && isName {
			name, isName = text, false
			continue
		}
		switch t := t.(type) {
		case json.Delim:
			switch t {
			case '{', '[':
				open = append(open, opened{object: t == '{'})
			default:
				if last := open[len(open)-1]; last.name != "" {
					if i := at(last.key); i >= 0 && last.key != "" {
						files[i].Name = last.name
					}
				}
				open = open[:len(open)-1]
			}
		case string:
			switch name {
			case "image_key", "img_key":
				add(t, relay.FileImage)
			case "file_key":
				add(t, relay.FileOther)
				open[len(open)-1].key = t
			case "file_name":
				open[len(open)-1].name = fileName(t)
			case "content", "text":
				for _, m := range markdownImage.FindAllStringSubmatch(t, maxKeys) {
					add(m[1], relay.FileImage)
				}
			}
		}
		isName = len(open) > 0 && open[len(open)-1].object
		name = ""
	}
}

// opened is an object or a list of a content that is being read.
type opened struct {
	object    bool
	key, name string // its file_key and file_name
}

// fileName is what is kept of the name of a file.
func fileName(name string) string {
	return strings.ToValidUTF8(oneLine(name[:min(len(name), relay.MaxName)]), "")
}
