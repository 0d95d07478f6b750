package demo

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"feishu-relay/relay"
)

//go:embed script.yaml
var scriptFile []byte

// script is one act of script.yaml, in one language.
type script struct {
	Count     string      // of the sidecars, as a word
	Title     string      // printed first
	Env       []string    // of the sidecars
	Cast      []character // the bots, in the order in which they are shown
	Groups    []group     // a chat takes place in the first; none: there is no chat
	Everybody string      // words with which a person addresses all bots
	Chat      []string    // notes for who chats
	Scenes    []scene
}

// character is one of the bots: who it is, and what it answers.
type character struct {
	Agent string // AGENT_NAME
	Name  string // as the group sees it
	Role  string // AGENT_ROLE
	Asked []line // by a person
	Told  []line // by a bot that addresses it
}

// line is an answer to what has one of the words of Hears, or "" for anything, in it. The bot may give another agent
// the task Gives, and tell it Tells, before it says Says.
type line struct{ Hears, Gives, Tells, Says string }

// group is a group of bots and the user.
type group struct {
	ID      relay.ChatID
	Name    string
	Members []string // agents
}

// scene is one thing to show: this and nothing else has to happen.
type scene struct {
	Title string
	Chat  relay.ChatID // "": the first group; without groups, the private chat of the user and the first bot
	Steps []map[string]string
	// Want has what becomes of the messages of each agent at the others, in the order of the cast, as fate.String has
	// it.
	Want map[string][]string
	Ends string // what there is to see in it
}

// code completes a text with what the bots write in Go.
var code = strings.NewReplacer("{code}", "```go\nfunc Sort(s []int) { slices.Sort(s) }\n```",
	"{search}", "```go\nfunc Search(s []int, x int) (int, bool) { return slices.BinarySearch(s, x) }\n```",
	"{test}", "```go\nfunc TestEmpty(t *testing.T) { Sort(nil) }\n```")

// act reads an act of the script; 1 is the first.
func (l language) act(number int) *script {
	var file struct{ Acts []*script }
	var doc yaml.Node
	err := yaml.Unmarshal(scriptFile, &doc)
	if err == nil {
		l.choose(&doc)
		err = doc.Decode(&file)
	}
	if err != nil {
		panic(fmt.Errorf("script.yaml: %w", err)) // it is a part of the program, and tests read it
	}
	return file.Acts[number-1]
}

// choose replaces each text of n that is in both languages by the one in this language.
func (l language) choose(n *yaml.Node) {
	n.Value = code.Replace(n.Value)
	for _, child := range n.Content {
		l.choose(child)
	}
	if n.Kind == yaml.MappingNode && len(n.Content) == 4 && n.Content[0].Value == "en" && n.Content[2].Value == "zh" {
		text := n.Content[1]
		if l.chinese {
			text = n.Content[3]
		}
		*n = *text
	}
}

// pick returns the line that answers text, which sender has said, with its texts complete.
func (s *script) pick(lines []line, sender, text string) line {
	for _, l := range lines {
		if l.Hears == "" || has(text, l.Hears) {
			l.Says = strings.NewReplacer("{sender}", sender, "{task}", s.task(text), "{text}", text).Replace(l.Says)
			return l
		}
	}
	return line{}
}

func has(text, words string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(strings.Fields(words), func(word string) bool { return strings.Contains(text, word) })
}

// maxTask is the most runes of a task that are handed on; the rest is cut.
const maxTask = 200

// task is text without the names in it: handed on, they would address again.
func (s *script) task(text string) string {
	for _, c := range s.Cast {
		text = strings.ReplaceAll(text, "@"+c.Name, "")
	}
	runes := []rune(strings.TrimRight(strings.Join(strings.Fields(text), " "), "。.!！"))
	return string(runes[:min(maxTask, len(runes))])
}

// verb does a step of a scene; object is the text behind the verb in the script.
type verb func(ctx context.Context, object string)

// verbs are the steps that there are.
func (s *stage) verbs() map[string]verb {
	return map[string]verb{
		"ask":    func(ctx context.Context, text string) { s.says(ctx, s.scene.Chat, text) },
		"note":   func(_ context.Context, text string) { s.board.note(text) },
		"settle": func(ctx context.Context, _ string) { s.settle(ctx) },
		"kill":   func(_ context.Context, agent string) { s.sidecars[s.index(agent)].kill() },
		"stop":   func(_ context.Context, agent string) { must(s.sidecars[s.index(agent)].stop()) },
		"start":  func(ctx context.Context, agent string) { must(s.sidecars[s.index(agent)].start(ctx)) },
		"spoken": func(ctx context.Context, agent string) {
			said := func(m *message) bool { return m.sender == agent }
			s.await(ctx, agent+" hands over", func() bool {
				return s.board.busy == 0 && slices.ContainsFunc(s.board.messages[s.from:], said)
			})
		},
		"include bots":        s.includeBots,
		"delivered by Feishu": s.deliveredByFeishu,
		// What the agent that thinks does.
		"completed": s.thinks("completed", ""),
		"failed":    s.thinks("failed", "/fail "),
		"message":   s.thinks(messageKind, ""),
		// Of tasks: "2 accepted" is the second, in that state.
		"task":         s.awaitTask,
		"known":        s.knowsTask,
		"nothing left": s.nothingLeft,
	}
}

// playScenes plays all scenes, each to its expected end.
func (s *stage) playScenes(ctx context.Context) {
	verbs := s.verbs()
	for i, scene := range s.script.Scenes {
		s.out.plain("")
		s.out.title(fmt.Sprintf("%d. %s", i+1, scene.Title))
		s.scene, s.from = scene, s.board.said()
		must(wrap(try(func() {
			for _, step := range scene.Steps {
				for name, object := range step {
					verbs[name](ctx, object)
				}
			}
			s.settle(ctx)
		}), "scene %d", i+1))
		must(wrap(s.board.compare(s.from, scene.Want), "scene %d did not come to its expected end", i+1))
		if scene.Ends != "" {
			s.board.note(scene.Ends)
		}
	}
}

// settle waits for the end of everything that was said.
func (s *stage) settle(ctx context.Context) {
	s.await(ctx, "everything delivered or stopped", s.board.quiet)
}

// await waits until done, which is called with the board's lock held, returns true.
func (s *stage) await(ctx context.Context, what string, done func() bool) {
	must(await(ctx, what, func(context.Context) (bool, error) {
		s.board.mu.Lock()
		defer s.board.mu.Unlock()
		return done(), nil
	}))
}
