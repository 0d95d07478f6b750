package feishusim

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"
)

// Limits of a card (docs/feishu.md 5.2).
const (
	maxCardBytes    = 30 << 10
	maxCardElements = 200
	maxCardDepth    = 32
	streamFor       = 10 * time.Minute // after that its streaming mode ends automatically
)

// card is the card of a message, or an entity of CardKit.
type card struct {
	id       string // id of an entity
	app      string // the app that made it
	tree     map[string]any
	initial  map[string]any // with mentions resolved at creation
	message  *message       // the message that shows the entity; nil: not sent yet
	sequence int64
	since    time.Time     // start of streaming; zero: not streaming
	life     time.Duration // how long it may stream; 0: streamFor
	over     bool          // the bot was told that its time to stream is over
}

// parseCard reads an inline card, version 1 or 2, or a template.
func parseCard(content string) (*card, error) {
	var tree map[string]any
	if json.Unmarshal([]byte(content), &tree) != nil || tree == nil {
		return nil, errCardContent
	}
	k := &card{tree: tree}
	if tree["type"] == "template" {
		return k, nil
	}
	if depth(tree) > maxCardDepth || len(k.elements()) > maxCardElements {
		return nil, errCardContent
	}
	return k, k.duplicate()
}

// inline reads the card of a message and returns errors of the message API.
func inline(content string) (*card, error) {
	k, err := parseCard(content)
	if e, ok := errors.AsType[*apiError](err); ok {
		return nil, cardError(e.code, e.msg)
	}
	return k, err
}

// duplicate refuses a card in which an element_id occurs twice.
func (k *card) duplicate() error {
	seen := map[string]bool{}
	for _, e := range k.elements() {
		id := str(e["element_id"])
		if id != "" && seen[id] {
			return errDuplicate
		}
		seen[id] = true
	}
	return nil
}

// v2 reports whether the card JSON has version 2.
func (k *card) v2() bool { return str(k.tree["schema"]) == "2.0" }

func (k *card) clone() *card {
	if k == nil {
		return nil
	}
	c := &card{app: k.app, initial: k.initial, since: k.since, life: k.life}
	_ = json.Unmarshal([]byte(compact(k.tree)), &c.tree) // a deep copy
	return c
}

func (k *card) config() map[string]any {
	config, _ := k.tree["config"].(map[string]any)
	return config
}

func (k *card) streams() bool {
	return !k.since.IsZero() && time.Since(k.since) < cmp.Or(k.life, streamFor)
}

// configured applies the streaming mode in the card's config.
func (k *card) configured() {
	on, _ := k.config()["streaming_mode"].(bool)
	switch {
	case !on:
		k.since = time.Time{}
	case k.since.IsZero():
		k.since, k.over = time.Now(), false
	}
}

// parts are the keys that hold further elements or texts, in reading order.
var parts = []string{"header", "title", "subtitle", "body", "i18n_elements", "zh_cn", "en_us", "text", "fields",
	"extra", "elements", "columns", "actions"}

// walk visits v and its children, in reading order.
func walk(v any, visit func(map[string]any)) {
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			walk(e, visit)
		}
	case map[string]any:
		visit(v)
		for _, key := range parts {
			if v[key] != nil {
				walk(v[key], visit)
			}
		}
	}
}

// elements returns all nodes of the card that have a tag.
func (k *card) elements() []map[string]any {
	var all []map[string]any
	walk(k.tree, func(n map[string]any) {
		if n["tag"] != nil {
			all = append(all, n)
		}
	})
	return all
}

// text returns the card's text as a person reads it, in document order.
func (k *card) text(c *converter) string {
	if k.tree["type"] == "template" {
		return "[card]"
	}
	var lines []string
	for _, e := range k.elements() {
		switch e["tag"] {
		case "markdown", "plain_text", "lark_md":
			if _, shown := c.cardText(str(e["content"])); shown != "" {
				lines = append(lines, shown)
			}
		case "img":
			lines = append(lines, "[image]")
		}
	}
	return strings.Join(lines, "\n")
}

// cardText resolves the mentions in a card's markdown, for the event and for
// display.
func (c *converter) cardText(in string) (received, shown string) {
	return replaceTags(cardAt, in, func(tag []string) (received, shown string) {
		ids, label := []string{strings.Trim(tag[2], `"'`)}, tag[3]
		if tag[1] == "ids" {
			ids, label = strings.Split(ids[0], ","), ""
		}
		for _, id := range ids {
			id = strings.TrimSpace(id)
			key, name := c.at(id, label)
			shown += name
			if strings.HasPrefix(key, "@_user_") {
				received += "<at id=" + id + " mention_key=" + key + "></at>"
			} else {
				received += "<at id=" + id + "></at>"
			}
		}
		return received, shown
	})
}

// card returns a copy of tree with its mentions resolved.
func (c *converter) card(tree map[string]any) map[string]any {
	return c.resolved(tree).(map[string]any)
}

func (c *converter) resolved(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			out[key] = c.resolved(v[key])
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = c.resolved(e)
		}
		return out
	case string:
		received, _ := c.cardText(v)
		return received
	}
	return v
}

func depth(v any) int {
	deepest := 0
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			deepest = max(deepest, depth(e))
		}
	case []any:
		for _, e := range v {
			deepest = max(deepest, depth(e))
		}
	default:
		return 0
	}
	return deepest + 1
}

// Contents of a card message, by card_msg_content_type (docs/feishu.md 3.2 and 5.3).
const upgrade = "请升级至最新版本客户端，以查看内容"

// received returns the content in an event: a placeholder or the simplified
// card, and the sender's card.
func (k *card) received() string {
	v := k.simplified()
	if k.tree["type"] != "template" {
		v["user_dsl"] = compact(k.initial)
	}
	return compact(v)
}

// content returns the content that the API reads back for a
// card_msg_content_type.
func (k *card) content(kind string) string {
	switch {
	case k.tree["type"] == "template":
		return compact(k.simplified())
	case kind == "user_card_content":
		return compact(map[string]any{"user_dsl": compact(k.tree)})
	case kind == "raw_card_content":
		schema := 1
		if k.v2() {
			schema = 2
		}
		return compact(map[string]any{"json_card": compact(raw(k.tree)), "card_schema": schema})
	}
	return compact(k.simplified())
}

// simplified returns the old form: paragraphs of text nodes.
func (k *card) simplified() map[string]any {
	header, _ := k.tree["header"].(map[string]any)
	title, _ := header["title"].(map[string]any)
	lines := [][]map[string]any{}
	if k.v2() || k.tree["type"] == "template" {
		lines = append(lines, []map[string]any{{"tag": "text", "text": upgrade}})
	} else {
		for _, e := range k.elements() {
			if text := str(e["content"]); text != "" && str(e["content"]) != str(title["content"]) {
				lines = append(lines, []map[string]any{{"tag": "text", "text": text}})
			}
		}
	}
	return map[string]any{"title": str(title["content"]), "elements": lines}
}

// raw converts v to the node format of raw_card_content, which has an element's
// fields under property.
func raw(v any) any {
	switch v := v.(type) {
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = raw(e)
		}
		return out
	case map[string]any:
		out := map[string]any{}
		if v["tag"] == nil {
			for key, e := range v {
				out[key] = raw(e)
			}
			return out
		}
		property := map[string]any{}
		for key, e := range v {
			switch key {
			case "tag":
				out["tag"] = e
			case "element_id":
				out["id"] = e
			default:
				property[key] = raw(e)
			}
		}
		out["property"] = property
		return out
	}
	return v
}
