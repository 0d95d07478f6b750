package mention

// Prefix returns the agent whose name text begins with, with or without an '@' before it,
// and what follows it. The longest name wins. The agent is "" where no name matches,
// where two agents have it, or where it stands for everybody; rest is text then.
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
