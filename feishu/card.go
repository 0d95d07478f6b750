package feishu

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"feishu-relay/relay"
)

// maxCard is the most bytes of text a card may hold, about; an edit beyond it is
// refused. Feishu itself takes 30 KB and 100,000 characters of streamed text
// (docs/feishu.md 5.2).
const maxCard = 1 << 20

var errCardFull = errors.New("the card would be too large or too deep")

// Card is a card as the bot builds it up, by inline JSON of either schema, by
// CardKit's calls, or as others receive it (docs/feishu.md 3.2, 5.1, 5.2). Its JSON is
// the card's. The zero Card is an empty one. A Card is not safe for concurrent
// use.
//
// Edits are those that Feishu has accepted already, so they are taken
// leniently: what names an unknown element is added at the end rather than
// lost, and an edit that makes no sense is an error and changes nothing.
type Card struct {
	root map[string]any
}

// NewCard reads a card's JSON of at most 1 MiB: schema 1 or 2, a template, the
// form {"type":"card_json","data":"…"}, or a received card with its user_dsl.
func NewCard(data []byte) (*Card, error) {
	root, err := object(data, maxContent)
	if err != nil {
		return nil, fmt.Errorf("the card %w", err)
	}
	return newCard(root)
}

func newCard(root map[string]any) (*Card, error) {
	inner := ""
	switch {
	case isText(root["user_dsl"]):
		inner = field(root, "user_dsl")
	case root["type"] == "card_json":
		inner = field(root, "data")
	}
	if inner != "" {
		card, err := object([]byte(inner), maxContent)
		if err != nil {
			return nil, fmt.Errorf("the card %w", err)
		}
		root = card
	}
	return &Card{root: root}, nil
}

// MarshalJSON returns the card's JSON. It has a value receiver so that a Card
// that is a plain field is kept too.
func (c Card) MarshalJSON() ([]byte, error) {
	if c.root == nil {
		return []byte("{}"), nil
	}
	data, err := relay.Marshal(c.root)
	return rawSeparators(data), err
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (c *Card) UnmarshalJSON(data []byte) error {
	root, err := tree(data, 7*maxCard) // an escape makes six bytes of one
	if err != nil {
		return fmt.Errorf("the card %w", err)
	}
	m, ok := root.(map[string]any)
	if !ok {
		return errors.New("the card is no JSON object")
	}
	c.root = m
	return nil
}

// Streaming reports whether the card says that its text is still being written.
func (c *Card) Streaming() bool {
	config, _ := c.root["config"].(map[string]any)
	return config["streaming_mode"] == true
}

// isV2 reports whether the elements stand in a body.
func (c *Card) isV2() bool {
	schema, _ := c.root["schema"].(string)
	return schema == "2.0" || isObject(c.root["body"])
}

// bottom is the list at whose end unknown elements are added.
func (c *Card) bottom() (parent map[string]any, key string) {
	c.begin()
	if c.isV2() {
		body, ok := c.root["body"].(map[string]any)
		if !ok {
			body = map[string]any{}
			c.root["body"] = body
		}
		return body, "elements"
	}
	if i18n, ok := c.root["i18n_elements"].(map[string]any); ok && !isList(c.root["elements"]) {
		for _, locale := range locales {
			if isList(i18n[locale]) {
				return i18n, locale
			}
		}
	}
	return c.root, "elements"
}

func (c *Card) begin() {
	if c.root == nil {
		c.root = map[string]any{"schema": "2.0"}
	}
}

// The fields that elements stand in, in the order in which they are shown.
var containers = []string{"i18n_elements", "header", "title", "text", "fields", "columns", "actions", "elements",
	"extra", "body"}

var locales = []string{"zh_cn", "en_us", "zh_hk", "zh_tw", "ja_jp"}

// spot is where an element stands: parent[key], or parent[key][index] where
// index is not negative.
type spot struct {
	parent map[string]any
	key    string
	index  int
	node   map[string]any
}

// find returns where the element with that id stands.
func (c *Card) find(id string) (spot, bool) {
	if id == "" {
		return spot{}, false
	}
	return find(c.root, containers, id, 0)
}

func find(parent map[string]any, keys []string, id string, depth int) (spot, bool) {
	if depth > maxDepth {
		return spot{}, false
	}
	inside := func(s spot) (spot, bool) {
		if s.node["element_id"] == id {
			return s, true
		}
		keys := containers
		if s.key == "i18n_elements" {
			keys = locales
		}
		return find(s.node, keys, id, depth+1)
	}
	for _, key := range keys {
		switch v := parent[key].(type) {
		case map[string]any:
			if s, ok := inside(spot{parent, key, -1, v}); ok {
				return s, true
			}
		case []any:
			for i, e := range v {
				node, _ := e.(map[string]any)
				if s, ok := inside(spot{parent, key, i, node}); ok {
					return s, true
				}
			}
		}
	}
	return spot{}, false
}

// put sets parent[key], unless the card would grow beyond its bounds.
func (c *Card) put(parent map[string]any, key string, value any) error {
	old, had := parent[key]
	parent[key] = value
	left := maxCard
	if fits(c.root, 1, &left) {
		return nil
	}
	if had {
		parent[key] = old
	} else {
		delete(parent, key)
	}
	return errCardFull
}

// Size is how many bytes the card takes, about.
func (c *Card) Size() int {
	left := math.MaxInt
	fits(c.root, 1, &left)
	return math.MaxInt - left
}

// fits measures v: a node costs a few bytes besides its text.
func fits(v any, depth int, left *int) bool {
	const node = 16
	switch v := v.(type) {
	case string:
		*left -= len(v)
	case json.Number:
		*left -= len(v)
	case []any:
		for _, e := range v {
			if *left -= node; !fits(e, depth+1, left) {
				return false
			}
		}
		return depth <= maxDepth && *left >= 0
	case map[string]any:
		for name, e := range v {
			if *left -= len(name) + node; !fits(e, depth+1, left) {
				return false
			}
		}
		return depth <= maxDepth && *left >= 0
	}
	return *left >= 0
}

// CardID is the CardKit card that a message's content names; "" for an inline
// card.
func CardID(content string) string {
	var c struct {
		Type string `json:"type"`
		Data struct {
			CardID string `json:"card_id"`
		} `json:"data"`
	}
	if json.Unmarshal([]byte(content), &c) != nil || c.Type != "card" {
		return ""
	}
	return c.Data.CardID
}
