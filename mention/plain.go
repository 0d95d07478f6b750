package mention

// Hit is a name in a text, text[From:To] with its '@'.
type Hit struct {
	From, To int
	Agent    string
	Name     string // as the directory has it
}

// Plain returns the agents that text names with "@Name" as [Directory.Find] reads it, each
// time and in order; not its at-tags, and its placeholders only where one is an agent's name. text is read as it is,
// also where it is JSON, and up to [MaxContent] bytes.
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
