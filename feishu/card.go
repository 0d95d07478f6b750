package feishu

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"feishu-relay/feishu/content"
	"feishu-relay/internal/jsontree"
	"feishu-relay/internal/runes"
	"feishu-relay/relay"
)

// Card is a card that the bot builds, by inline JSON of either schema or by CardKit's calls, or that others receive
// (docs/feishu.md 3.2, 5.1, 5.2). As JSON it is the card's own JSON. The zero Card is an empty one. A Card is not safe
// for concurrent use, and its size is bounded by who keeps it.
//
// Feishu has already accepted the edits, so they are applied leniently: an edit of an unknown element adds to the end,
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

// CardID returns the id of the CardKit card in a message's content; "" for an inline
// card.
func CardID(raw string) string {
	return content.Parse("interactive", raw, nil).CardID
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

// maxStored is the most bytes of a card that are read again.
const maxStored = 16 << 20

// UnmarshalJSON reads what MarshalJSON wrote.
func (c *Card) UnmarshalJSON(data []byte) (err error) {
	if c.root, err = jsontree.Object(data, maxStored); err != nil {
		return fmt.Errorf("the card %w", err)
	}
	return nil
}

// Streaming reports whether the card is in streaming mode: its text is still being written.
func (c *Card) Streaming() bool {
	return jsontree.Member(c.root, "config")["streaming_mode"] == true
}

// change replaces the element with an id by what with returns, and reports whether it did. An element that is not in a
// list but a field, as a title, can be replaced by one only, or removed.
func change(v any, id string, with func(element map[string]any) []any) bool {
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { return change(e, id, with) })
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			list, isList := v[key].([]any)
			if !isList {
				list = []any{v[key]}
			}
			i := slices.IndexFunc(list, func(e any) bool {
				element, _ := e.(map[string]any)
				return id != "" && element["element_id"] == id
			})
			if i < 0 {
				if change(v[key], id, with) {
					return true
				}
				continue
			}
			now := slices.Concat(list[:i], with(list[i].(map[string]any)), list[i+1:])
			switch {
			case isList:
				v[key] = now
			case len(now) > 1:
				return false
			case len(now) == 1:
				v[key] = now[0]
			default:
				delete(v, key)
			}
			return true
		}
	}
	return false
}

// change changes an element, or adds others at the card's end if it is unknown.
func (c *Card) change(id string, with func(element map[string]any) []any, otherwise ...any) {
	if !change(c.root, id, with) {
		c.add(otherwise...)
	}
}

// add puts nodes at the card's end.
func (c *Card) add(nodes ...any) {
	if c.root == nil {
		c.root = map[string]any{"schema": "2.0"}
	}
	parent := c.root
	if !jsontree.IsList(parent["elements"]) {
		if parent = jsontree.Member(c.root, "body"); parent == nil {
			parent = map[string]any{}
			c.root["body"] = parent
		}
	}
	list, _ := parent["elements"].([]any)
	parent["elements"] = append(list, nodes...)
}

// maxStreamed is the most bytes of text of one element: Feishu's
// 100,000 characters. A longer text is cut there.
const maxStreamed = 400_000

// setContent sets the whole text of an element so far.
func (c *Card) setContent(id, text string) {
	text = strings.ToValidUTF8(runes.Cut(text, maxStreamed), "")
	c.change(id, func(element map[string]any) []any {
		if inner := jsontree.Member(element, "text"); inner != nil {
			inner["content"] = text
		} else {
			element["content"] = text
		}
		return []any{element}
	}, map[string]any{"tag": "markdown", "element_id": id, "content": text})
}

// Replace replaces the whole card.
func (c *Card) Replace(data []byte) error {
	other, err := NewCard(data)
	if err == nil {
		c.root = other.root
	}
	return err
}

// actions are the calls of CardKit that change a part of a card, by their method and path behind the card's id, and
// what does the same in a batch.
var actions = map[string]string{"PATCH /settings": "partial_update_setting", "POST /elements": "add_elements",
	"PUT /elements/{element}": "update_element", "PATCH /elements/{element}": "partial_update_element",
	"DELETE /elements/{element}": "delete_elements"}

// Apply applies a call of CardKit (docs/feishu.md 5.2), by its method and path behind the card's id, such as
// "PUT /elements/{element}", the element in it, and its body.
func (c *Card) Apply(call, element string, body []byte) error {
	p := map[string]any{}
	if len(body) > 0 {
		var err error
		if p, err = jsontree.Object(body, content.MaxBytes); err != nil {
			return fmt.Errorf("change the card: the body %w", err)
		}
	}
	switch call {
	case "PUT ":
		return c.Replace([]byte(jsontree.Field(jsontree.Member(p, "card"), "data")))
	case "PUT /elements/{element}/content":
		c.setContent(element, jsontree.Field(p, "content"))
		return nil
	case "POST /batch_update":
		return c.batch(p["actions"])
	}
	p["element_id"] = element
	return c.action(actions[call], p)
}

// batch applies a list of actions with their params. An invalid action is skipped, which is an error.
func (c *Card) batch(actions any) error {
	list, ok := decoded(actions).([]any)
	if !ok {
		return errors.New("change the card: the actions are not a list")
	}
	var err error
	for _, e := range list {
		action, _ := e.(map[string]any)
		params, _ := decoded(action["params"]).(map[string]any)
		if one := c.action(jsontree.Field(action, "action"), params); one != nil {
			err = one
		}
	}
	return err
}

var errAction = errors.New("change the card: an action or its parameters are unknown")

// action is one of a batch. The other calls of CardKit are actions, too.
func (c *Card) action(name string, p map[string]any) error {
	id := jsontree.Field(p, "element_id")
	part := jsontree.Member(map[string]any{"": decoded(p["partial_element"], p["element"])}, "")
	switch {
	case name == "partial_update_setting":
		settings, ok := decoded(p["settings"], p).(map[string]any)
		if !ok {
			return errAction
		}
		if config, ok := settings["config"].(map[string]any); ok {
			settings = config
		}
		c.add() // it is a card from now on
		c.root["config"] = merged(jsontree.Member(c.root, "config"), settings)
	case name == "add_elements":
		return c.insert(jsontree.Field(p, "type"), jsontree.Field(p, "target_element_id"),
			decoded(p["elements"], p["element_list"]))
	case name == "delete_elements":
		ids, _ := decoded(p["element_ids"], p["element_id_list"]).([]any)
		for _, id := range append(ids, id) {
			id, _ := id.(string)
			c.change(id, func(map[string]any) []any { return nil })
		}
	case part != nil && (name == "update_element" || name == "partial_update_element"):
		if !jsontree.IsText(part["element_id"]) && id != "" {
			part["element_id"] = id
		}
		c.change(id, func(element map[string]any) []any {
			if name == "partial_update_element" {
				return []any{merged(element, part)}
			}
			return []any{part}
		}, merged(map[string]any{"tag": "markdown"}, part))
	default:
		return errAction
	}
	return nil
}

// insert puts a node or a list of them beside or inside an element, else at the end.
func (c *Card) insert(where, target string, added any) error {
	nodes, isList := added.([]any)
	if jsontree.IsObject(added) {
		nodes = []any{added}
	} else if !isList {
		return errAction
	}
	c.change(target, func(element map[string]any) []any {
		switch where {
		case "insert_before":
			return append(nodes, element)
		case "append":
			key := "elements"
			if element["tag"] == "column_set" {
				key = "columns"
			}
			inside, _ := element[key].([]any)
			element[key] = append(inside, nodes...)
			return []any{element}
		}
		return append([]any{element}, nodes...)
	}, nodes...)
	return nil
}

// merged returns old with the fields of change, objects merged recursively.
func merged(old, change map[string]any) map[string]any {
	all := map[string]any{}
	maps.Copy(all, old)
	for name, now := range change {
		was, isObject := old[name].(map[string]any)
		if change, ok := now.(map[string]any); ok && isObject {
			now = merged(was, change)
		}
		all[name] = now
	}
	return all
}

// decoded returns the first of some values that is present, decoded if it is a JSON string; nil if it cannot be.
func decoded(values ...any) any {
	for _, v := range values {
		if v, err := jsontree.Unquoted(v, content.MaxBytes); err == nil && v != nil {
			return v
		}
	}
	return nil
}
