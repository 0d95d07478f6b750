// Package mention finds out which agents a message addresses.
//
// A bot is addressed in many ways: by a name behind an '@' as a model writes
// it, by the at-tags of the platform's texts and cards, by a placeholder with a
// mention record beside the text, by at-nodes in posts and cards. [Directory]
// knows the agents, and [Directory.Find] reads all of these forms.
//
// # Names
//
// The longest known name wins, letter case and full-width forms aside. A name
// that ends in a letter of a script that separates words must not run on:
// "@Ann" is not "@Anna", "@Ann-Marie" or "@ann.example". Scripts without word
// boundaries may follow anything: "@小明请看" addresses 小明, and "@Ann请看"
// addresses Ann. A name that two agents share names neither, unless an id tells
// them apart. The relay name of an agent counts as one of its names.
//
// # What does not count
//
// Nothing inside inline code, fenced code, lines quoted with '>', e-mail
// addresses and URLs addresses anybody; nor do code blocks, buttons and the
// grey notes of posts and cards.
//
// # Ids
//
// Ids are tried before names, since a name may be anybody's. The platform gives
// a bot another id for every app that looks, so an unknown id is no
// contradiction to a known name.
//
// # Bounds
//
// At most [MaxContent] bytes of a content are read, [MaxRefs] mention records
// and [MaxDepth] levels of JSON; what lies beyond is ignored. Time grows
// linearly with the text. Malformed JSON is read as plain text, and no input is
// an error.
package mention

import (
	"slices"
	"strings"
)

// Bounds of what is read of one message; what lies beyond is ignored.
const (
	MaxContent = 256 << 10 // bytes of a content; longer JSON is read as plain text
	MaxRefs    = 256       // mention records
	MaxDepth   = 32        // levels of nodes in a post or card
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

// Text is a message to look at.
type Text struct {
	Content string // plain text, or the platform's JSON of a text, post or card
	MsgType string // "text", "post", "interactive"; "" tells by the content
	Refs    []Ref
}

// Found says who is addressed.
type Found struct {
	Agents []string // relay names in order of first appearance, none twice
	All    bool     // everybody in the group was addressed
}

// Marks that stand where an agent's index may.
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
	byID    map[string]int // by platform id; several where two agents claim it
	names   *node
}

// NewDirectory returns a directory of agents. Entries with the same ID are one
// agent; one without an ID is left out.
func NewDirectory(agents []Agent) *Directory {
	d := &Directory{byAgent: map[string]int{}, byID: map[string]int{}, names: newNode()}
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

// join is what a key stands for that stood for was and is now claimed by i.
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

// Find returns the agents that t addresses: those its text shows, in order of
// appearance, then those that only its mention records name.
func (d *Directory) Find(t Text) Found {
	s := d.scan(t)
	found := Found{All: s.all}
	for _, h := range s.hits {
		found.Agents = append(found.Agents, d.agents[h.agent].ID)
	}
	return found
}

// Resolve returns the mention records to send along with t, so that a receiver
// to whom the sender's ids mean nothing knows who is addressed. The agents of
// [Directory.Find] come first, each with its AgentName, a Name, and the OpenID
// and Key by which t named it; then t's other records (of people, or of
// agents named twice) follow.
func (d *Directory) Resolve(t Text) []Ref {
	s := d.scan(t)
	var out []Ref
	told := map[string]bool{"": true} // keys that are in out
	for _, h := range s.hits {
		r := h.ref
		if r.Key == "" && r.OpenID == "" { // the text showed the name alone
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
			r.OpenID = "" // an app id, by which some calls name bots
		}
		told[r.Key] = true
		out = append(out, r)
	}
	for _, r := range s.list {
		agent := d.ofRef(r)
		addressed := agent >= 0 && s.hit[agent]
		if told[r.Key] && (r.Key != "" || addressed) {
			continue // it stands among the agents
		}
		if addressed {
			r.AgentName = d.agents[agent].ID
		}
		told[r.Key] = true
		out = append(out, r)
	}
	return out
}

// ofRef returns the agent that r records. What the sender's sidecar resolved
// goes before the id, and the id before names.
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
		// The sender may know the agent under a display name. If not, it is an
		// agent unknown here, and one that merely has its name is not meant.
		return d.names.find(r.AgentName).agent
	}
	return d.names.find(r.Name).agent
}
