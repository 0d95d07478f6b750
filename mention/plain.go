package mention

// Hit is a name in a text, text[From:To] with its '@'.
type Hit struct {
	From, To int
	Agent    string
	Name     string // as in the directory
}

// Plain returns each "@Name" of an agent in text, in order, by the rules of [Directory.Find]. It ignores
// at-tags, and placeholders that are not an agent's name. It reads text as plain text, even if it is JSON, up
// to [MaxContent] bytes.
func (d *Directory) Plain(text string) []Hit {
	s := scanner{dir: d, hit: make([]bool, len(d.agents))}
	var hits []Hit
	s.plain = func(from, to int, name entry) {
		if name.agent >= 0 {
			hits = append(hits, Hit{from, to, d.agents[name.agent].ID, name.name})
		}
	}
	s.block(clip(text, MaxContent))
	return hits
}

// Prefix returns the agent whose name text begins with, with or without an '@' before it,
// and the text after it. The longest name wins. If no name matches, two agents have it,
// or it means everybody, the agent is "" and rest is text.
func (d *Directory) Prefix(text string) (agent, rest string) {
	if text == "" {
		return "", ""
	}
	name, end := d.names.match(text, nil, atSign(text))
	if name.agent < 0 {
		return "", text
	}
	return d.agents[name.agent].ID, text[end:]
}
