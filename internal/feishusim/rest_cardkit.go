package feishusim

import (
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"strconv"
	"time"
)

const cardsPath = "/open-apis/cardkit/v1/cards"

var cardRoutes = []route{
	{pattern: "POST " + cardsPath, scopes: cardScopes, run: with(createCard)},
	{pattern: "POST " + cardsPath + "/id_convert", scopes: cardScopes, run: with(convertCardID)},
	{pattern: "PUT " + cardsPath + "/{card}", scopes: cardScopes, run: change(replaceCard)},
	{pattern: "PATCH " + cardsPath + "/{card}/settings", scopes: cardScopes, run: change(setCard)},
	{pattern: "PUT " + cardsPath + "/{card}/elements/{element}/content", scopes: cardScopes, run: change(setContent)},
}

// maxContent is the most characters of one element's text (docs/feishu.md 5.2).
const maxContent = 100_000

// cardChange is the body of all calls that change a card.
type cardChange struct {
	Sequence int64    `json:"sequence"`
	Card     cardData `json:"card"`
	Settings string   `json:"settings"`
	Content  *string  `json:"content"`
	Element  string   `json:"-"` // from the path
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
		in.Element = c.r.PathValue("element")
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
	var settings map[string]any
	if json.Unmarshal([]byte(in.Settings), &settings) != nil || settings == nil || depth(settings) > maxCardDepth {
		return errField
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
	e := k.find(in.Element)
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
