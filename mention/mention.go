// Package mention finds the agents that a message addresses.
//
// A message addresses a bot in one of several forms: a name after an '@' as a
// model writes it, an at-tag of the platform's texts and cards, a placeholder
// with a mention record besides the text, an at-node in a post or card.
// [Directory] knows the agents, and [Directory.Find] reads all of these forms.
//
// # Names
//
// The longest known name wins; letter case and full-width forms do not matter.
// After a name that ends in a letter of a script with spaces between words the
// word must end: "@Anna", "@Ann-Marie" and "@ann.example" do not address Ann.
// Scripts without word boundaries may follow anything: "@小明请看" addresses 小明,
// and "@Ann请看" addresses Ann. A name that two agents share addresses neither,
// unless an id identifies one. The relay name of an agent is also one of its
// names.
//
// # What does not count
//
// Mentions inside inline code, fenced code, lines quoted with '>', e-mail
// addresses and URLs do not count, nor do those in code blocks, buttons and the
// footers and panels of posts and cards.
//
// # Ids
//
// Ids take precedence over names, which anyone can choose. The platform gives a
// bot a different id for every app that sees it, so an unknown id does not
// contradict a known name.
//
// # Bounds
//
// At most [MaxContent] bytes of a content are read, and [MaxRefs] mention records;
// the rest is ignored. Time grows linearly with the text. JSON that is malformed, or
// nested more deeply than package content reads, is plain text, and no input is an error.
package mention

import (
	"slices"
	"strings"
)

// Limits for reading one message; the rest is ignored.
const (
	MaxContent = 256 << 10 // bytes of a content; longer JSON is read as plain text
	MaxRefs    = 256       // mention records
	MaxName    = 128       // runes of a name; a longer one is never found
)

// Agent is a bot that can be addressed.
type Agent struct {
	ID    string   // its name on the relay
	Names []string // display name first, then aliases
	IDs   []string // its open_ids as seen by any app, and its app_id
}

// Ref is a mention record: the platform's, which explains a placeholder in the
// text, or one that another sidecar resolved. Any field may be empty.
type Ref struct {
	Key       string // the placeholder, "@_user_1"
	Name      string
	OpenID    string
	AgentName string
}

// Text is a message to search.
type Text struct {
	Content string // plain text, or the platform's JSON of a text, post or card
	MsgType string // "text", "post", "interactive"; "": detected from the content
	Refs    []Ref
}

// Found is the addressees of a message.
type Found struct {
	Agents []string // relay names in order of first appearance, without repeats
	All    bool     // the message addresses everybody in the group
}

// Special values in place of an agent's index.
const (
	nobody   = -1
	several  = -2 // ambiguous
	everyone = -3
)

// Directory knows agents by their names and ids. It is immutable and safe for
// concurrent use.
type Directory struct {
	agents  []Agent
	byAgent map[string]int // by Agent.ID
	byID    map[string]int // by platform id; several if two agents have it
	names   names
}

// NewDirectory returns a directory of agents. Entries with the same ID are one
// agent; an entry without an ID is left out.
func NewDirectory(agents []Agent) *Directory {
	d := &Directory{byAgent: map[string]int{}, byID: map[string]int{}}
	for _, name := range []string{"all", "_all", "所有人"} {
		d.names.add(name, everyone)
	}
	d.byID["all"] = everyone
	d.byID["@_all"] = everyone
	for _, a := range agents {
		if a.ID == "" {
			continue
		}
		i, known := d.byAgent[a.ID]
		if !known {
			i = len(d.agents)
			d.byAgent[a.ID] = i
			d.agents = append(d.agents, Agent{ID: a.ID})
		}
		d.agents[i].Names = slices.Concat(d.agents[i].Names, a.Names)
		d.names.add(a.ID, i)
		for _, name := range a.Names {
			d.names.add(name, i)
		}
		for _, id := range a.IDs {
			if id != "" {
				d.byID[id] = join(lookUp(d.byID, id), i)
			}
		}
	}
	return d
}

// join returns the meaning of a key that meant was and is also claimed by i.
func join(was, i int) int {
	switch was {
	case nobody, i:
		return i
	case everyone:
		return everyone
	}
	return several
}

func lookUp(m map[string]int, key string) int {
	if i, ok := m[key]; ok {
		return i
	}
	return nobody
}

// Find returns the agents that t addresses: those in its text, in order of
// appearance, then those only in its mention records.
func (d *Directory) Find(t Text) Found {
	s := d.scan(t)
	found := Found{All: s.all}
	for _, h := range s.hits {
		found.Agents = append(found.Agents, d.agents[h.agent].ID)
	}
	return found
}

// Resolve returns the mention records to send along with t, so that a receiver
// that does not know the sender's ids learns which agents are addressed. The
// agents of [Directory.Find] come first, each with its AgentName, a Name, and
// the OpenID and Key by which t named it; then t's other records (of people, or
// of agents named twice) follow.
func (d *Directory) Resolve(t Text) []Ref {
	s := d.scan(t)
	var out []Ref
	listed := map[string]bool{"": true} // keys already in out
	for _, h := range s.hits {
		r := h.ref
		if r.Key == "" && r.OpenID == "" { // only the name is in the text
			i := slices.IndexFunc(s.list, func(r Ref) bool { return d.ofRef(r) == h.agent })
			if i >= 0 {
				r = s.list[i]
			}
		}
		a := d.agents[h.agent]
		r.AgentName = a.ID
		switch {
		case len(a.Names) > 0:
			r.Name = a.Names[0]
		case r.Name == "":
			r.Name = a.ID
		}
		if strings.HasPrefix(r.OpenID, "cli_") {
			r.OpenID = "" // an app id, which some calls use for bots
		}
		listed[r.Key] = true
		out = append(out, r)
	}
	for _, r := range s.list {
		agent := d.ofRef(r)
		addressed := agent >= 0 && s.hit[agent]
		if listed[r.Key] && (r.Key != "" || addressed) {
			continue // it is among the agents
		}
		if addressed {
			r.AgentName = d.agents[agent].ID
		}
		listed[r.Key] = true
		out = append(out, r)
	}
	return out
}

// ofRef returns the agent that r records. The agent that the sender's sidecar
// resolved takes precedence over the id, and the id over names.
func (d *Directory) ofRef(r Ref) int {
	if i, ok := d.byAgent[r.AgentName]; ok {
		return i
	}
	if i := lookUp(d.byID, r.OpenID); i != nobody && i != several {
		return i
	}
	if r.Key == "@_all" {
		return everyone
	}
	if r.AgentName != "" {
		// The sender may use the agent's display name. Otherwise the agent is
		// unknown here, and another agent that only has the same display name
		// is not meant.
		return d.names.find(r.AgentName).agent
	}
	return d.names.find(r.Name).agent
}
