package group

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"feishu-relay/mention"
	"feishu-relay/relay"
)

// Verb is what a command asks for.
type Verb string

// The verbs.
const (
	VerbStatus    Verb = "status"
	VerbHelp      Verb = "help"
	VerbPause     Verb = "pause"
	VerbResume    Verb = "resume"
	VerbMute      Verb = "mute"
	VerbUnmute    Verb = "unmute"
	VerbAnswer    Verb = "answer"
	VerbLimit     Verb = "limit"
	VerbThreshold Verb = "threshold"
	VerbJudge     Verb = "judge"
	VerbBudget    Verb = "budget"
	VerbContinue  Verb = "continue"
	VerbStop      Verb = "stop"
	VerbWhy       Verb = "why"
	VerbForget    Verb = "forget"
)

// verbs are the commands in the order of the help: the word in Chinese, the arguments as the help has them, what
// they are about, and whether they take bots. What each means is in the catalogue.
var verbs = []row{
	{VerbStatus, "状态", text2{}, ActAnswer, false,
		text2{"bots, settings and the last stop", "机器人、设置和最近一次停止的原因"}},
	{VerbHelp, "帮助", text2{}, ActAnswer, false, text2{"these commands", "这些命令"}},
	{VerbPause, "暂停", text2{" [30m]", " [30分钟]"}, ActSet, false,
		text2{"pause bots' messages to each other", "暂停机器人之间的消息"}},
	{VerbResume, "恢复", text2{}, ActSet, false, text2{"end the pause", "结束暂停"}},
	{VerbMute, "静音", text2{" Bot [2h]", " 机器人 [2小时]"}, ActSet, true, text2{"mute a bot", "将一个机器人静音"}},
	{VerbUnmute, "取消静音", text2{" Bot", " 机器人"}, ActSet, true, text2{"give it messages again", "让它重新接收消息"}},
	{VerbAnswer, "回答", text2{" all|named|default|one|Bot", " 全部|点名|默认|一个|机器人"}, ActSet, true,
		text2{"who answers when no bot is mentioned", "没有点名时由谁回答"}},
	{VerbLimit, "上限", text2{" 5", " 5"}, ActSet, false,
		text2{"number of bots' messages in a row at which they stop", "机器人连续发言到第几条停止"}},
	{VerbThreshold, "阈值", text2{" 1", " 1"}, ActSet, false,
		text2{"how many of them pass without the judge", "其中前几条不经裁判"}},
	{VerbJudge, "裁判", text2{" on|off", " 开|关"}, ActSet, false,
		text2{"whether the judge decides on the others", "其余的是否由裁判决定"}},
	{VerbBudget, "预算", text2{" 100", " 100"}, ActSet, false,
		text2{"bots' messages an hour, 0 for no limit", "每小时的机器人消息数，0 为不限"}},
	{VerbContinue, "继续", text2{" [Bot]", " [机器人]"}, ActContinue, true,
		text2{"release the messages that were stopped", "放行被停止的消息"}},
	{VerbStop, "停止", text2{}, ActStop, false,
		text2{"stop the bots until a person writes again", "叫停机器人，直到有人再发消息"}},
	{VerbWhy, "为什么", text2{}, ActAnswer, false,
		text2{"what happened to the message you reply to", "所回复的那条消息的处理结果"}},
	{VerbForget, "还原", text2{}, ActSet, false, text2{"remove the settings made in this group", "还原本群的设置"}},
}

type row struct {
	verb Verb
	zh   string
	args text2
	act  Act
	bots bool  // it takes bots
	help text2 // what it does
}

// row is the row of a verb, an empty one if it is unknown.
func (v Verb) row() (r row) {
	if i := slices.IndexFunc(verbs, func(r row) bool { return r.verb == v }); i >= 0 {
		return verbs[i]
	}
	return r
}

// The words of the modes and of the judge's two states: English, Chinese.
var (
	modeWords = map[Mode]text2{ModeAll: {"all", "全部"}, ModeNamed: {"named", "点名"}, ModeDefault: {"default", "默认"},
		ModeOne: {"one", "一个"}}
	stateWords = map[bool]text2{true: {"on", "开"}, false: {"off", "关"}}
)

// asked is a command.
type asked struct {
	verb    Verb
	chinese bool              // the answer's language; else English
	bots    []relay.AgentName // those named, each once
	pause   time.Duration     // of pause and mute; 0: until somebody ends it
	mode    Mode              // of answer; ModeDefault with a bot: that one is the default bot
	number  string            // of limit, threshold and budget, as it was given
	limit   int               // of threshold: the limit that comes with it; 0: the group's
	on      bool              // of judge
	mistake text2             // what the person got wrong; nothing is executed then
}

// parseCommand reads a person's message. It is a command if it begins with one of words, alone or behind mentions of
// bots.
func parseCommand(said string, words []string, bots []Peer) (a asked, is bool) {
	r := newReader(said, bots)
	if !r.mentions(isSeparator) {
		return a, false
	}
	word := r.commandWord(words)
	if word == "" {
		return a, false
	}
	a.chinese = HasHan(word)
	a.mistake = r.command(&a, word)
	return a, true
}

// command reads what is behind the command word: a verb, bots and words.
func (r *reader) command(a *asked, word string) (wrong text2) {
	r.separators()
	row, known := r.verb()
	if !known {
		return say("no command", r.word(), word)
	}
	a.verb = row.verb
	var words []string
	for r.separators(); r.rest != ""; r.separators() {
		after, mentioned := *r, r.atMention()
		said := after.word()
		_, isMode := modeOf(said)
		agent, shown := relay.AgentName(""), ""
		if row.bots && (mentioned || a.verb != VerbAnswer || !isMode) {
			agent, shown = r.bot()
		}
		switch {
		case agent != "":
			a.bots = append(a.bots, agent)
		case row.bots && mentioned:
			a.bots = nil
			return say("not a bot", cmp.Or(shown, said), botsHere(r.bots))
		default:
			words = append(words, said)
			r.rest = after.rest
		}
	}
	a.bots = here(a.bots, r.bots)
	return a.take(append(words, ""), r.bots)
}

// take takes the words behind a verb, of which the last is "".
func (a *asked) take(words []string, bots []Peer) (wrong text2) {
	known, first := true, words[0]
	switch a.verb {
	case VerbMute, VerbUnmute, VerbPause:
		if a.verb != VerbPause && len(a.bots) == 0 {
			if first != "" {
				return say("not a bot", first, botsHere(bots))
			}
			return say("which bot", a.verb, botsHere(bots))
		}
		if first == "" || a.verb == VerbUnmute {
			break
		}
		if a.pause, known = parseDuration(first); !known {
			return say("bad time", first)
		}
		words = words[1:]
	case VerbAnswer:
		if a.mode, known = modeOf(first); known {
			words = words[1:]
		}
		switch {
		case len(a.bots) == 1 && (first == "" || a.mode == ModeDefault):
			a.mode = ModeDefault
		case known && len(a.bots) == 0:
		case known:
			wrong = say("unexpected", labels(bots, a.bots...), a.verb)
			a.bots = nil
			return wrong
		case first == "":
			return say("who answers", botsHere(bots))
		default:
			return say("answers not", first, botsHere(bots))
		}
	case VerbLimit, VerbThreshold, VerbBudget:
		a.number = first // what it may be depends on the group
		if _, err := strconv.Atoi(first); err != nil {
			return none
		}
		words = words[1:]
	case VerbJudge:
		a.on = stateWords[true].is(first)
		switch {
		case first == "":
			return say("on or off")
		case !a.on && !stateWords[false].is(first):
			return say("not on or off", first)
		}
		words = words[1:]
	}
	if words[0] != "" {
		return say("unexpected", words[0], a.verb)
	}
	return none
}

// modeOf is the mode of a word.
func modeOf(said string) (mode Mode, known bool) {
	for mode, words := range modeWords {
		if words.is(said) {
			return mode, true
		}
	}
	return "", false
}

// isContinue reports whether a person's message only asks that what was stopped goes on, at the bots that it mentions,
// none for all.
func isContinue(said string, bots []Peer) (mentioned []relay.AgentName, is bool) {
	r := newReader(said, bots)
	ok := r.mentions(isBetween)
	said, _, _ = strings.Cut(r.rest, "@")
	r.rest = r.rest[len(said):]
	all := r.mentions(isBetween)
	word := strings.ToLower(strings.Join(strings.Fields(strings.TrimFunc(said, isBetween)), " "))
	return here(r.mentioned, bots), ok && all && r.rest == "" && (word == "继续" || word == "continue" || word == "go on")
}

// HasHan reports whether a text has Chinese characters: the language of a notice.
func HasHan(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return unicode.Is(unicode.Han, r) })
}

// reader goes through a command.
type reader struct {
	rest  string
	bots  []Peer
	names *mention.Directory

	mentioned []relay.AgentName
}

func newReader(said string, bots []Peer) *reader {
	var agents []mention.Agent
	for _, b := range bots {
		agents = append(agents, mention.Agent{ID: string(b.Agent), Names: []string{b.Name}})
	}
	return &reader{rest: narrow(said), bots: bots, names: mention.NewDirectory(agents)}
}

const (
	ends      = ".。!?~…"
	separates = ",、;:"
)

func isEnd(r rune) bool       { return strings.ContainsRune(ends, r) }
func isSeparator(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(separates, r) }
func isBetween(r rune) bool   { return isSeparator(r) || isEnd(r) }

// separators goes on to the next argument; what only ends a sentence is none.
func (r *reader) separators() {
	r.rest = strings.TrimLeftFunc(r.rest, isSeparator)
	if strings.TrimFunc(r.rest, isBetween) == "" {
		r.rest = ""
	}
}

// word reads up to the next separator or mention, and leaves out the end of a sentence.
func (r *reader) word() string {
	end := strings.IndexFunc(r.rest, isSeparator)
	if end < 0 {
		end = len(r.rest)
	}
	if i := strings.Index(r.rest[:end], "@"); i > 0 {
		end = i
	}
	word := r.rest[:end]
	r.rest = r.rest[end:]
	return cmp.Or(strings.TrimRightFunc(word, isEnd), word)
}

func (r *reader) atMention() bool { return strings.HasPrefix(r.rest, "@") }

// bot reads a mention or a name. Where that is no bot's of the group, the agent is ""; shown is what was read.
func (r *reader) bot() (agent relay.AgentName, shown string) {
	found, rest := r.names.Prefix(r.rest)
	shown, r.rest = r.rest[:len(r.rest)-len(rest)], rest
	return relay.AgentName(found), shown
}

// mentions reads mentions of bots, and what separates them. It is not ok where one is of somebody else.
func (r *reader) mentions(between func(rune) bool) (ok bool) {
	for {
		r.rest = strings.TrimLeftFunc(r.rest, between)
		if rest, elsewhere := strings.CutPrefix(r.rest, "@"+botElsewhere); elsewhere {
			r.rest = rest
		} else if !r.atMention() {
			return true
		} else if agent, _ := r.bot(); agent == "" {
			return false
		} else {
			r.mentioned = append(r.mentioned, agent)
		}
	}
}

// commandWord reads one of words and returns it, "" if none comes. It does not go on as another word, except that a
// verb in Chinese may follow a Chinese word directly.
func (r *reader) commandWord(words []string) (word string) {
	var rest string
	for _, w := range words {
		if len(w) <= len(word) || len(w) > len(r.rest) || !strings.EqualFold(r.rest[:len(w)], w) {
			continue
		}
		after := r.rest[len(w):]
		next, _ := utf8.DecodeRuneInString(after)
		behind := reader{rest: after}
		_, verb := behind.verb()
		ended := strings.TrimFunc(after, isBetween) == "" || unicode.IsSpace(next) || strings.ContainsRune(",、;", next)
		if ended || HasHan(w) && verb {
			word, rest = w, after
		}
	}
	if word != "" {
		r.rest = rest
	}
	return word
}

// verb reads a verb; none is status. Arguments may follow one in Chinese directly.
func (r *reader) verb() (verb row, known bool) {
	if r.rest == "" {
		return verbs[0], true
	}
	after := *r
	said := after.word()
	for _, v := range verbs {
		if strings.EqualFold(said, string(v.verb)) {
			r.rest = after.rest
			return v, true
		}
		if rest, ok := strings.CutPrefix(r.rest, v.zh); ok {
			r.rest = rest
			return v, true
		}
	}
	return verb, false
}

// unitWords are the units of a duration, the longest first where one begins like another.
var unitWords = strings.NewReplacer("minutes", "m", "minute", "m", "mins", "m", "min", "m", "hours", "h", "hour", "h",
	"days", "d", "day", "d", "分钟", "m", "分", "m", "小时", "h", "天", "d")

// parseDuration reads such as 30m, 1h30m, 2小时 and 1d, at most maxPause.
func parseDuration(text string) (d time.Duration, ok bool) {
	text = unitWords.Replace(strings.ToLower(text))
	if days, is := strings.CutSuffix(text, "d"); is {
		n, _ := strconv.Atoi(days)
		text = strconv.Itoa(min(n, 1000)*24) + "h" // no number is no time
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d > 0 && d <= maxPause
}

// narrow maps full-width forms to those that keyboards elsewhere have.
func narrow(text string) string {
	return strings.Map(func(r rune) rune {
		if '！' <= r && r <= '～' {
			r += '!' - '！'
		}
		return r
	}, text)
}

// parse reads a person's message of this chat.
func (s *State) parse(m *relay.Message) (asked, bool) {
	if len(s.d.Config.Commands) == 0 || m.MsgType != "" && m.MsgType != "text" && m.MsgType != "post" {
		return asked{}, false
	}
	return parseCommand(s.spelledOut(m), s.d.Config.Commands, s.members())
}

// botElsewhere stands for a bot that has no sidecar in the group.
const botElsewhere = "\x00"

// spelledOut is what a person said, with the agents' names in the place of the platform's mentions of bots.
func (s *State) spelledOut(m *relay.Message) string {
	text := m.Content
	for _, x := range m.Mentions {
		name := botElsewhere
		switch {
		case s.member(x.AgentName):
			name = string(x.AgentName)
		case x.AgentName == "":
			continue // a person, or a bot of which only the name is known
		}
		text = strings.Replace(text, "@"+x.Name, "@"+name, 1)
	}
	return text
}
