package feishu

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
)

// maxKeys is how many keys [Keys] returns; the rest of a longer content is not
// looked at.
const maxKeys = 100

var markdownImage = regexp.MustCompile(`!\[[^\]\n]*\]\((img_[A-Za-z0-9_-]+)\)`)

// Keys returns the keys of the images and files in a content, in order and each
// once: image_key, file_key, a card's img_key and the images in markdown.
func Keys(msgType, content string) []string {
	if msgType == "text" || len(content) > maxContent || tooDeep([]byte(content)) {
		return nil
	}
	if msgType == "interactive" {
		var received struct {
			UserDSL string `json:"user_dsl"`
		}
		if json.Unmarshal([]byte(content), &received) == nil && received.UserDSL != "" {
			return Keys("", received.UserDSL)
		}
	}
	var keys []string
	add := func(key string) {
		if key != "" && checkIDs("", key) == nil && len(keys) < maxKeys && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	d := json.NewDecoder(strings.NewReader(content))
	name := "" // of the field whose value comes next
	var inObject []bool
	isName := false
	for {
		t, err := d.Token()
		if err != nil {
			return keys
		}
		if text, ok := t.(string); ok && isName {
			name, isName = text, false
			continue
		}
		switch t := t.(type) {
		case json.Delim:
			switch t {
			case '{', '[':
				inObject = append(inObject, t == '{')
			default:
				inObject = inObject[:len(inObject)-1]
			}
		case string:
			switch name {
			case "image_key", "file_key", "img_key":
				add(t)
			case "content", "text":
				for _, m := range markdownImage.FindAllStringSubmatch(t, maxKeys) {
					add(m[1])
				}
			}
		}
		isName = len(inObject) > 0 && inObject[len(inObject)-1]
		name = ""
	}
}
