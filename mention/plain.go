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
	s.plain = func(from, to int, name *node) {
		if name.agent >= 0 {
			hits = append(hits, Hit{from, to, d.agents[name.agent].ID, name.name})
		}
	}
	s.block(clip(text, MaxContent))
	return hits
}
