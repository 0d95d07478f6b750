package feishu

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"feishu-relay/feishu/content"
	"feishu-relay/internal/jsontree"
	"feishu-relay/internal/runes"
	"feishu-relay/relay"
)

// maxCard is about the most bytes of text of a card; an edit beyond it is
// refused. Feishu itself takes 30 KB and 100,000 characters of streamed text
// (docs/feishu.md 5.2).
const maxCard = 1 << 20

var errCardFull = errors.New("the card would be too large or too deep")

// Card is a card that the bot builds, by inline JSON of either schema or by
// CardKit's calls, or that others receive (docs/feishu.md 3.2, 5.1, 5.2). As JSON it is
// the card's own JSON. The zero Card is an empty one. A Card is not safe for concurrent
// use.
//
// Feishu has already accepted the edits, so they are applied
// leniently: an edit of an unknown element adds to the end,
// and an invalid edit is an error and changes nothing.
type Card struct {
	root map[string]any
}

// NewCard reads a card's JSON of at most 1 MiB: schema 1 or 2, a template, the
// form {"type":"card_json","data":"…"}, or a received card with its user_dsl.
func NewCard(data []byte) (*Card, error) {
	root, err := jsontree.Object(data, content.MaxBytes)
	if err == nil {
		root, err = content.CardOf(root)
	}
	if err != nil {
		return nil, fmt.Errorf("the card %w", err)
	}
	return &Card{root: root}, nil
}

// Doc is what a reader sees in the card now, with the names in it.
func (c *Card) Doc() content.Doc { return content.OfCard(c.root) }

// MarshalJSON returns the card's JSON. It has a value receiver so that a Card
// that is a plain field is kept too.
func (c Card) MarshalJSON() ([]byte, error) {
	if c.root == nil {
		return []byte("{}"), nil
	}
	return relay.Marshal(c.root)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (c *Card) UnmarshalJSON(data []byte) error {
	root, err := jsontree.Parse(data, 7*maxCard) // an escape makes six bytes of one
	if err != nil {
		return fmt.Errorf("the card %w", err)
	}
	m, ok := root.(map[string]any)
	if !ok {
		return errors.New("the card is not a JSON object")
	}
	c.root = m
	return nil
}

// Streaming reports whether the card is in streaming mode: its text is still being written.
func (c *Card) Streaming() bool {
	return jsontree.Member(c.root, "config")["streaming_mode"] == true
}

// isV2 reports whether the card has schema 2, with its elements in a body.
func (c *Card) isV2() bool {
	schema, _ := c.root["schema"].(string)
	return schema == "2.0" || jsontree.IsObject(c.root["body"])
}

// bottom returns the list at whose end elements are added.
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
	if i18n, ok := c.root["i18n_elements"].(map[string]any); ok && !jsontree.IsList(c.root["elements"]) {
		for _, locale := range locales {
			if jsontree.IsList(i18n[locale]) {
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

var locales = []string{"zh_cn", "en_us", "zh_hk", "zh_tw", "ja_jp"}

// spot is the position of an element: parent[key], or parent[key][index] if
// index is not negative.
type spot struct {
	parent map[string]any
	key    string
	index  int
	node   map[string]any
}

// find returns the position of the element with an id.
func (c *Card) find(id string) (spot, bool) {
	if id == "" {
		return spot{}, false
	}
	return find(c.root, id)
}

func find(parent map[string]any, id string) (spot, bool) {
	for _, key := range slices.Sorted(maps.Keys(parent)) {
		list, isList := parent[key].([]any)
		if !isList {
			list = []any{parent[key]}
		}
		for i, e := range list {
			node, _ := e.(map[string]any)
			if !isList {
				i = -1
			}
			if node["element_id"] == id {
				return spot{parent, key, i, node}, true
			}
			if s, ok := find(node, id); ok {
				return s, true
			}
		}
	}
	return spot{}, false
}

// put sets parent[key], unless the card would exceed its bounds.
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

// Size is about the number of bytes of the card.
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
		return depth <= jsontree.MaxDepth && *left >= 0
	case map[string]any:
		for name, e := range v {
			if *left -= len(name) + node; !fits(e, depth+1, left) {
				return false
			}
		}
		return depth <= jsontree.MaxDepth && *left >= 0
	}
	return *left >= 0
}

// CardID returns the id of the CardKit card in a message's content; "" for an inline
// card.
func CardID(raw string) string {
	return content.Parse("interactive", raw, nil).CardID
}

// maxStreamed is the most bytes of text of one element: Feishu's
// 100,000 characters. A longer text is cut there.
const maxStreamed = 400_000

// SetContent is PUT elements/{element}/content: the element's whole text so far.
// An unknown element is added at the end.
func (c *Card) SetContent(element, text string) {
	element, text = strings.ToValidUTF8(element, ""), strings.ToValidUTF8(runes.Cut(text, maxStreamed), "")
	s, ok := c.find(element)
	if !ok {
		// fails beyond the bounds: Feishu refuses it too
		_ = c.add(map[string]any{"tag": "markdown", "element_id": element, "content": text})
		return
	}
	node := s.node
	if inner, ok := node["text"].(map[string]any); ok {
		node = inner
	}
	_ = c.put(node, "content", text)
}

// ReplaceElement is PUT elements/{element}.
func (c *Card) ReplaceElement(element string, data []byte) error {
	return c.action("update_element", map[string]any{"element_id": element, "element": string(data)})
}

func (c *Card) replace(element string, node map[string]any) error {
	element = strings.ToValidUTF8(element, "")
	if !jsontree.IsText(node["element_id"]) && element != "" {
		node["element_id"] = element
	}
	s, ok := c.find(element)
	if !ok {
		return c.add(node)
	}
	if s.index < 0 {
		return c.put(s.parent, s.key, node)
	}
	list := slices.Clone(s.list())
	list[s.index] = node
	return c.put(s.parent, s.key, list)
}

// PatchElement is PATCH elements/{element}: the given properties only.
func (c *Card) PatchElement(element string, partial []byte) error {
	return c.action("partial_update_element", map[string]any{"element_id": element, "partial_element": string(partial)})
}

func (c *Card) patch(element string, properties map[string]any) error {
	s, ok := c.find(element)
	if ok {
		return c.replace(element, merged(s.node, properties))
	}
	if !jsontree.IsText(properties["tag"]) {
		properties["tag"] = "markdown"
	}
	return c.replace(element, properties)
}

// merged returns old with the fields of change, objects merged recursively.
func merged(old, change map[string]any) map[string]any {
	all := maps.Clone(old)
	for name, v := range change {
		was, ok := old[name].(map[string]any)
		if now, isMap := v.(map[string]any); ok && isMap {
			v = merged(was, now)
		}
		all[name] = v
	}
	return all
}

// AddElements is POST elements: where is insert_before, insert_after or append,
// and elements, a list or one, are added beside or inside the element target.
// Without a known target they are added at the end.
func (c *Card) AddElements(where, target string, elements []byte) error {
	return c.action("add_elements",
		map[string]any{"type": where, "target_element_id": target, "elements": string(elements)})
}

func (c *Card) insert(where, target string, elements any) error {
	nodes, ok := elements.([]any)
	if jsontree.IsObject(elements) {
		nodes, ok = []any{elements}, true
	}
	if !ok {
		return errors.New("the elements are not a list")
	}
	s, ok := c.find(target)
	switch {
	case !ok:
		return c.add(nodes...)
	case where == "append":
		key := "elements"
		if s.node["tag"] == "column_set" {
			key = "columns"
		}
		inside, _ := s.node[key].([]any)
		return c.put(s.node, key, slices.Concat(inside, nodes))
	case s.index < 0:
		return c.add(nodes...)
	}
	at := s.index
	if where != "insert_before" {
		at++
	}
	return c.put(s.parent, s.key, slices.Insert(slices.Clone(s.list()), at, nodes...))
}

// add puts nodes at the card's end.
func (c *Card) add(nodes ...any) error {
	parent, key := c.bottom()
	list, _ := parent[key].([]any)
	return c.put(parent, key, slices.Concat(list, nodes))
}

// DeleteElement is DELETE elements/{element}; an unknown one is ignored.
func (c *Card) DeleteElement(element string) {
	s, ok := c.find(element)
	switch {
	case !ok:
	case s.index < 0:
		delete(s.parent, s.key)
	default:
		s.parent[s.key] = slices.Delete(slices.Clone(s.list()), s.index, s.index+1)
	}
}

func (s spot) list() []any {
	list, _ := s.parent[s.key].([]any)
	return list
}

// Settings is PATCH settings, with {"config":{…}} or only its content
// (docs/feishu.md 5.2).
func (c *Card) Settings(data []byte) error {
	return c.action("partial_update_setting", map[string]any{"settings": string(data)})
}

func (c *Card) settings(settings map[string]any) error {
	change, ok := settings["config"].(map[string]any)
	if !ok {
		change = maps.Clone(settings)
		delete(change, "card_link")
	}
	c.begin()
	config, _ := c.root["config"].(map[string]any)
	if config == nil {
		config = map[string]any{}
	}
	return c.put(c.root, "config", merged(config, change))
}

// Replace is PUT cards/{card}, and the PATCH of a card message: it replaces the whole card.
func (c *Card) Replace(data []byte) error {
	other, err := NewCard(data)
	if err != nil {
		return err
	}
	c.root = other.root
	return nil
}

// Batch is batch_update: a list of actions with their params. An invalid action
// is skipped; the error names it.
func (c *Card) Batch(actions []byte) error {
	v, err := jsontree.Parse(actions, content.MaxBytes)
	if err == nil {
		v, err = jsontree.Unquoted(v, content.MaxBytes)
	}
	if err != nil {
		return fmt.Errorf("change the card: the actions %w", err)
	}
	list, ok := v.([]any)
	if !ok {
		return errors.New("change the card: the actions are not a list")
	}
	var errs []error
	for i, e := range list {
		action, _ := e.(map[string]any)
		params, _ := jsontree.Unquoted(action["params"], content.MaxBytes)
		p, ok := params.(map[string]any)
		if !ok {
			p = map[string]any{}
		}
		if err := c.action(jsontree.Field(action, "action"), p); err != nil && len(errs) < 10 {
			errs = append(errs, fmt.Errorf("action %d: %w", i+1, err))
		}
	}
	return errors.Join(errs...)
}

func (c *Card) action(name string, p map[string]any) error {
	element := jsontree.Field(p, "element_id")
	switch name {
	case "partial_update_setting":
		settings, ok := param(p, "settings").(map[string]any)
		if !ok && p["settings"] != nil {
			return errors.New("settings is not a JSON object")
		} else if !ok {
			settings = p
		}
		return c.settings(settings)
	case "add_elements":
		return c.insert(jsontree.Field(p, "type"), jsontree.Field(p, "target_element_id"), param(p, "elements", "element_list"))
	case "delete_elements":
		ids, _ := param(p, "element_ids", "element_id_list").([]any)
		for _, id := range append(ids, element) {
			id, _ := id.(string)
			c.DeleteElement(id)
		}
		return nil
	case "partial_update_element":
		change, ok := param(p, "partial_element").(map[string]any)
		if !ok {
			return errors.New("partial_element is not a JSON object")
		}
		return c.patch(element, change)
	case "update_element":
		node, ok := param(p, "element").(map[string]any)
		if !ok {
			return errors.New("element is not a JSON object")
		}
		return c.replace(element, node)
	}
	return errors.New("unknown action")
}

// param returns the first of p's named fields that is present, decoded if it
// is a JSON string.
func param(p map[string]any, names ...string) any {
	for _, name := range names {
		if v, err := jsontree.Unquoted(p[name], content.MaxBytes); err == nil && v != nil {
			return v
		}
	}
	return nil
}
