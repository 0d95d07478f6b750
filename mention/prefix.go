package mention

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
