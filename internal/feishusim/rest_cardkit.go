package feishusim

import (
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

const cardsPath = "/open-apis/cardkit/v1/cards"

var cardRoutes = []route{
	{pattern: "POST " + cardsPath, scopes: cardScopes, run: with(createCard)},
	{pattern: "POST " + cardsPath + "/id_convert", scopes: cardScopes, run: with(convertCardID)},
	{pattern: "PUT " + cardsPath + "/{card}", scopes: cardScopes, run: change(replaceCard)},
	{pattern: "PATCH " + cardsPath + "/{card}/settings", scopes: cardScopes, run: change(setCard)},
	{pattern: "POST " + cardsPath + "/{card}/batch_update", scopes: cardScopes, run: change(batchCard)},
	{pattern: "POST " + cardsPath + "/{card}/elements", scopes: cardScopes, run: change(addElements)},
	{pattern: "PUT " + cardsPath + "/{card}/elements/{element}", scopes: cardScopes, run: change(replaceElement)},
	{pattern: "PATCH " + cardsPath + "/{card}/elements/{element}", scopes: cardScopes, run: change(patchElement)},
	{pattern: "DELETE " + cardsPath + "/{card}/elements/{element}", scopes: cardScopes, run: change(deleteElements)},
	{pattern: "PUT " + cardsPath + "/{card}/elements/{element}/content", scopes: cardScopes, run: change(setContent)},
}

// batched are the actions of a batch.
var batched = map[string]func(*card, *cardChange) error{
	"partial_update_setting": setCard,
	"add_elements":           addElements,
	"delete_elements":        deleteElements,
	"update_element":         replaceElement,
	"partial_update_element": patchElement,
}

// maxContent is the most characters of one element's text (docs/feishu.md 5.2).
const maxContent = 100_000

// cardChange is the body of all calls that change a card, and the parameters of an action of a batch.
type cardChange struct {
	Sequence int64    `json:"sequence"`
	Card     cardData `json:"card"`
	Settings jsonText `json:"settings"`
	Actions  jsonText `json:"actions"`
	Type     string   `json:"type"`
	Target   string   `json:"target_element_id"`
	Elements jsonText `json:"elements"`
	Element  jsonText `json:"element"`
	Partial  jsonText `json:"partial_element"`
	Content  *string  `json:"content"`
	ID       string   `json:"element_id"`  // of a batch, else from the path
	IDs      jsonText `json:"element_ids"` // of a batch
}

// jsonText is JSON in a string, or in a batch JSON itself.
type jsonText string

// UnmarshalJSON takes both.
func (t *jsonText) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, (*string)(t)) != nil {
		*t = jsonText(data)
	}
	return nil
}

// object reads an object that is not too deep.
func (t jsonText) object() (v map[string]any, err error) {
	if json.Unmarshal([]byte(t), &v) != nil || v == nil || depth(v) > maxCardDepth {
		return nil, errField
	}
	return v, nil
}

type cardData struct {
	Type string `json:"type"`
	Data string `json:"data"`
}

type sentCard struct {
	ID string `json:"message_id"`
}

func createCard(c *call, in *cardData) (any, error) {
	k, err := parseEntity(*in)
	if err != nil {
		return nil, err
	}
	k.app = c.app.ID
	k.configured()
	c.s.keep(k)
	return map[string]any{"card_id": k.id}, nil
}

// keep makes a card an entity, with an id of digits.
func (s *Server) keep(k *card) {
	k.id = "7" + strconv.FormatUint(1e17+rand.Uint64N(9e17), 10)
	k.life = s.opts.StreamFor
	s.cards[k.id] = k
	s.cardOrder = append(s.cardOrder, k.id)
	if len(s.cardOrder) > maxCards {
		delete(s.cards, s.cardOrder[0])
		s.cardOrder = s.cardOrder[1:]
	}
}

func parseEntity(in cardData) (*card, error) {
	if in.Type != "card_json" {
		return nil, errField
	}
	if len(in.Data) > maxCardBytes {
		return nil, errCardBig
	}
	k, err := parseCard(in.Data)
	switch {
	case errors.Is(err, errCardContent):
		return nil, errField
	case err != nil:
		return nil, err
	case !k.v2():
		return nil, errSchema
	}
	return k, nil
}

func convertCardID(c *call, in *sentCard) (any, error) {
	m := c.s.messages[in.ID]
	switch {
	case m == nil || m.card == nil:
		return nil, errMessageID
	case m.Sender != c.app.ID:
		return nil, errCardApp
	}
	if m.card.id == "" { // an inline card becomes an entity
		if !m.card.v2() {
			return nil, errSchema
		}
		m.card.app, m.card.message = c.app.ID, m
		c.s.keep(m.card)
		m.CardID = m.card.id
	}
	return map[string]any{"card_id": m.card.id}, nil
}

// change makes a route that checks a change, applies it with do, and shows it.
func change(do func(*card, *cardChange) error) func(*call) (any, error) {
	return with(func(c *call, in *cardChange) (any, error) {
		k := c.s.cards[c.r.PathValue("card")]
		switch {
		case k == nil:
			return nil, errNoCard
		case k.app != c.app.ID:
			return nil, errCardApp
		}
		in.ID = c.r.PathValue("element")
		if in.Sequence <= k.sequence {
			return nil, errSequence
		}
		before := *k.clone()
		if err := do(k, in); err != nil {
			k.tree, k.since = before.tree, before.since // all or nothing
			return nil, err
		}
		k.sequence = in.Sequence
		if k.message != nil {
			k.message.UpdateTime = time.Now().UnixMilli()
			c.s.touch(k.message, "edit")
		}
		return nil, nil
	})
}

func replaceCard(k *card, in *cardChange) error {
	next, err := parseEntity(in.Card)
	if err != nil {
		return err
	}
	k.tree = next.tree
	k.configured()
	return nil
}

// setCard accepts the settings with and without their "config" (docs/feishu.md
// 5.2).
func setCard(k *card, in *cardChange) error {
	settings, err := in.Settings.object()
	if err != nil {
		return err
	}
	if inner, ok := settings["config"].(map[string]any); ok {
		settings = inner
	}
	config := k.config()
	if config == nil {
		config = map[string]any{}
		k.tree["config"] = config
	}
	if on, _ := settings["streaming_mode"].(bool); on {
		k.since = time.Time{} // streaming begins again
	}
	maps.Copy(config, settings)
	k.configured()
	return nil
}

// setContent streams a text, of which each call has the whole.
func setContent(k *card, in *cardChange) error {
	switch {
	case in.Content == nil || *in.Content == "" || len([]rune(*in.Content)) > maxContent:
		return errField
	case !k.streams() && !k.since.IsZero() && !k.over:
		k.over = true
		return errStreamOver
	case !k.streams():
		return errStreamOff
	}
	e := k.find(in.ID)
	if e == nil {
		return errElement
	}
	e["content"] = *in.Content
	return nil
}

func (k *card) find(id string) map[string]any {
	for _, e := range k.elements() {
		if str(e["element_id"]) == id && id != "" {
			return e
		}
	}
	return nil
}

func replaceElement(k *card, in *cardChange) error { return k.merge(in.ID, in.Element, true) }

func patchElement(k *card, in *cardChange) error { return k.merge(in.ID, in.Partial, false) }

// merge writes fields into an element, in place of all that it has or beside it.
func (k *card) merge(id string, fields jsonText, replace bool) error {
	next, err := fields.object()
	if err != nil {
		return err
	}
	e := k.find(id)
	if e == nil {
		return errElement
	}
	if replace {
		clear(e)
	}
	maps.Copy(e, next)
	return k.duplicate()
}

// deleteElements deletes one element, or those of a batch.
func deleteElements(k *card, in *cardChange) error {
	ids := []string{in.ID}
	if in.IDs != "" && json.Unmarshal([]byte(in.IDs), &ids) != nil {
		return errField
	}
	for _, id := range ids {
		if !k.splice(id, func(list []any, at int) []any { return slices.Delete(list, at, at+1) }) {
			return errElement
		}
	}
	return nil
}

func addElements(k *card, in *cardChange) error {
	var more []any
	if json.Unmarshal([]byte(in.Elements), &more) != nil || depth(more) > maxCardDepth {
		return errField
	}
	if len(k.elements())+len(more) > maxCardElements {
		return errCardBig
	}
	switch in.Type {
	case "insert_before", "insert_after":
		after := 0
		if in.Type == "insert_after" {
			after = 1
		}
		if !k.splice(in.Target, func(list []any, at int) []any { return slices.Insert(list, at+after, more...) }) {
			return errElement
		}
	case "append":
		holder := k.find(in.Target)
		if in.Target == "" {
			holder, _ = k.tree["body"].(map[string]any)
		}
		if holder == nil {
			return errElement
		}
		list, _ := holder["elements"].([]any)
		holder["elements"] = append(list, more...)
	default:
		return errField
	}
	return k.duplicate()
}

// splice changes the list that holds the element.
func (k *card) splice(id string, change func(list []any, at int) []any) bool {
	done := false
	walk(k.tree, func(n map[string]any) {
		for _, key := range []string{"elements", "columns", "actions"} {
			list, _ := n[key].([]any)
			at := slices.IndexFunc(list, func(e any) bool {
				m, _ := e.(map[string]any)
				return id != "" && str(m["element_id"]) == id
			})
			if at >= 0 && !done {
				n[key], done = change(list, at), true
			}
		}
	})
	return done
}

// batchCard makes several changes in one call.
func batchCard(k *card, in *cardChange) error {
	var actions []struct {
		Action string     `json:"action"`
		Params cardChange `json:"params"`
	}
	if json.Unmarshal([]byte(in.Actions), &actions) != nil {
		return errField
	}
	for _, a := range actions {
		do := batched[a.Action]
		if do == nil {
			return errField
		}
		if err := do(k, &a.Params); err != nil {
			return err
		}
	}
	return nil
}
