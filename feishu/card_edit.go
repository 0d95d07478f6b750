package feishu

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxStreamed is the most bytes of text that one element takes: Feishu's
// 100,000 characters. What is longer is cut there.
const maxStreamed = 400_000

// SetContent is PUT elements/{element}/content: the element's whole text so far.
// An unknown element is added at the end.
func (c *Card) SetContent(element, text string) {
	element, text = strings.ToValidUTF8(element, ""), strings.ToValidUTF8(text[:min(len(text), maxStreamed)], "")
	s, ok := c.find(element)
	if !ok {
		// beyond the bounds: Feishu refuses it too
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
	node, err := object(data, maxContent)
	if err != nil {
		return fmt.Errorf("replace element: it %w", err)
	}
	return c.replace(element, node)
}

func (c *Card) replace(element string, node map[string]any) error {
	element = strings.ToValidUTF8(element, "")
	if !isText(node["element_id"]) && element != "" {
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
	properties, err := object(partial, maxContent)
	if err != nil {
		return fmt.Errorf("change element: the change %w", err)
	}
	return c.patch(element, properties)
}

func (c *Card) patch(element string, properties map[string]any) error {
	s, ok := c.find(element)
	if ok {
		return c.replace(element, merged(s.node, properties))
	}
	if !isText(properties["tag"]) {
		properties["tag"] = "markdown"
	}
	return c.replace(element, properties)
}

// merged is old with the fields of change, those of objects one by one.
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
// and target the element beside which, or inside which, elements (a list or
// one) are added. Without a known target they are added at the end.
func (c *Card) AddElements(where, target string, elements []byte) error {
	v, err := unquoted(elements, maxContent)
	if err != nil {
		return fmt.Errorf("add elements: the list %w", err)
	}
	return c.insert(where, target, v)
}

func (c *Card) insert(where, target string, elements any) error {
	nodes, ok := elements.([]any)
	switch {
	case ok:
	case isObject(elements):
		nodes = []any{elements}
	default:
		return errors.New("add elements: it is no list")
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

// DeleteElement is DELETE elements/{element}; an unknown one is gone already.
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

// Settings is PATCH settings, with {"config":{…}} or only what is in it
// (docs/feishu.md 5.2).
func (c *Card) Settings(data []byte) error {
	settings, err := object(data, maxContent)
	if err != nil {
		return fmt.Errorf("change settings: the change %w", err)
	}
	return c.settings(settings)
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

// Replace is PUT cards/{card}, and the PATCH of a card message: another card in
// its place.
func (c *Card) Replace(data []byte) error {
	other, err := NewCard(data)
	if err != nil {
		return err
	}
	c.root = other.root
	return nil
}

// Batch is batch_update: a list of actions with their params. An action that
// makes no sense is left out; the error names it.
func (c *Card) Batch(actions []byte) error {
	v, err := unquoted(actions, maxContent)
	if err != nil {
		return fmt.Errorf("change the card: the actions %w", err)
	}
	list, ok := v.([]any)
	if !ok {
		return errors.New("change the card: the actions are no list")
	}
	var errs []error
	for i, e := range list {
		action, _ := e.(map[string]any)
		params, _ := unquotedValue(action["params"])
		p, ok := params.(map[string]any)
		if !ok {
			p = map[string]any{}
		}
		if err := c.action(field(action, "action"), p); err != nil && len(errs) < 10 {
			errs = append(errs, fmt.Errorf("action %d: %w", i+1, err))
		}
	}
	return errors.Join(errs...)
}

func (c *Card) action(name string, p map[string]any) error {
	element := field(p, "element_id")
	switch name {
	case "partial_update_setting":
		if settings, ok := param(p, "settings").(map[string]any); ok {
			p = settings
		}
		return c.settings(p)
	case "add_elements":
		return c.insert(field(p, "type"), field(p, "target_element_id"), param(p, "elements", "element_list"))
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
			return errors.New("partial_element is no JSON object")
		}
		return c.patch(element, change)
	case "update_element":
		node, ok := param(p, "element").(map[string]any)
		if !ok {
			return errors.New("element is no JSON object")
		}
		return c.replace(element, node)
	}
	return errors.New("unknown action")
}

// param returns the first of p's named fields that is there, decoded where it
// is a JSON string.
func param(p map[string]any, names ...string) any {
	for _, name := range names {
		if v, err := unquotedValue(p[name]); err == nil && v != nil {
			return v
		}
	}
	return nil
}
