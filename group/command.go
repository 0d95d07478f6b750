package group

import (
	"cmp"
	"slices"
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

// verbs are the commands in the order of the help: the word in Chinese, the arguments and meaning as the help has
// them, and what reads the arguments.
var verbs = []struct {
	verb  Verb
	zh    string
	args  text2
	means text2
	read  func(*reader, *asked) *mistake
}{
	{VerbStatus, "状态", text2{}, text2{"bots, settings and the last stop", "机器人、设置和最近一次停止的原因"}, nil},
	{VerbHelp, "帮助", text2{}, text2{"these commands", "这些命令"}, nil},
	{VerbPause, "暂停", text2{"[30m]", "[30分钟]"}, text2{"pause bots' messages to each other", "暂停机器人之间的消息"}, (*reader).readDuration},
	{VerbResume, "恢复", text2{}, text2{"end the pause", "结束暂停"}, nil},
	{VerbMute, "静音", text2{"Bot [2h]", "机器人 [2小时]"}, text2{"mute a bot", "将一个机器人静音"}, (*reader).readMute},
	{VerbUnmute, "取消静音", text2{"Bot", "机器人"}, text2{"give it messages again", "让它重新接收消息"}, (*reader).readSomeBots},
	{VerbAnswer, "回答", text2{"all|named|default|one|Bot", "全部|点名|默认|一个|机器人"},
		text2{"who answers when no bot is mentioned", "没有点名时由谁回答"}, (*reader).readAnswer},
	{VerbLimit, "上限", text2{"5", "5"}, text2{"number of bots' messages in a row at which they stop", "机器人连续发言到第几条停止"},
		(*reader).readNumber},
	{VerbThreshold, "阈值", text2{"1", "1"}, text2{"how many of them pass without the judge", "其中前几条不经裁判"}, (*reader).readNumber},
	{VerbJudge, "裁判", text2{"on|off", "开|关"}, text2{"whether the judge decides on the others", "其余的是否由裁判决定"}, (*reader).readState},
	{VerbBudget, "预算", text2{"100", "100"}, text2{"bots' messages an hour, 0 for no limit", "每小时的机器人消息数，0 为不限"},
		(*reader).readNumber},
	{VerbContinue, "继续", text2{"[Bot]", "[机器人]"}, text2{"release the messages that were stopped", "放行被停止的消息"}, (*reader).readBots},
	{VerbStop, "停止", text2{}, text2{"stop the bots until a person writes again", "叫停机器人，直到有人再发消息"}, nil},
	{VerbWhy, "为什么", text2{}, text2{"what happened to the message you reply to", "所回复的那条消息的处理结果"}, nil},
	{VerbForget, "还原", text2{}, text2{"remove the settings made in this group", "还原本群的设置"}, nil},
}

// The words of the modes and of the judge's two states: English, Chinese.
var (
	modeWords = map[Mode]text2{ModeAll: {"all", "全部"}, ModeNamed: {"named", "点名"}, ModeDefault: {"default", "默认"},
		ModeOne: {"one", "一个"}}
	stateWords = map[bool]text2{true: {"on", "开"}, false: {"off", "关"}}
)

// named is somebody whom a person mentioned.
type named struct {
	text  string          // as it is in the text: "@BotB"
	agent relay.AgentName // "": no bot that has a sidecar here
	isBot bool
}

// asked is a command.
type asked struct {
	verb     Verb
	chinese  bool              // the answer's language; else English
	bots     []relay.AgentName // those named, each once
	pause    time.Duration     // of pause and mute; 0: until somebody ends it
	mode     Mode              // of answer; ModeDefault with a bot: that one is the default bot
	n        int               // of limit, threshold and budget; -1: no number was given
	noNumber string            // what was given then
	on       bool              // of judge
	mistake  *mistake          // what the person got wrong; nothing is executed then
}

// parseCommand reads a person's message. It is a command if it begins with one of words, alone or behind mentions of
// bots.
func parseCommand(said string, mentions []named, words []string, bots []Member) (a asked, is bool) {
	r := reader{rest: strings.TrimLeftFunc(said, unicode.IsSpace), mentions: slices.Clone(mentions), bots: bots}
	for r.atMention() {
		if i := r.longest(); i >= 0 && r.mentions[i].isBot && r.mentions[i].agent == "" { // one without a sidecar
			r.rest = r.rest[len(r.mentions[i].text):]
		} else if agent, _ := r.bot(); agent == "" {
			return a, false
		}
		r.separators()
	}
	word := r.commandWord(words)
	if word == "" {
		return a, false
	}
	a.chinese = hasHan(word)
	a.mistake = r.command(&a, word)
	return a, true
}

// command reads what is behind the command word.
func (r *reader) command(a *asked, word string) *mistake {
	r.separators()
	i, known := r.verb()
	if !known {
		return mistakeOf("no command", r.word(), word)
	}
	a.verb = verbs[i].verb
	r.separators()
	if verbs[i].read != nil {
		if wrong := verbs[i].read(r, a); wrong != nil {
			return wrong
		}
	}
	r.separators()
	if left := r.word(); left != "" {
		return mistakeOf("unexpected", left, a.verb)
	}
	return nil
}

func (r *reader) readDuration(a *asked) *mistake {
	if r.rest == "" {
		return nil
	}
	said := r.word()
	d, ok := parseDuration(said)
	if a.pause = d; !ok || d <= 0 || d > maxPause {
		a.pause = 0
		return mistakeOf("bad time", said)
	}
	return nil
}

func (r *reader) readBots(a *asked) (wrong *mistake) {
	a.bots, wrong = r.several()
	return wrong
}

func (r *reader) readSomeBots(a *asked) *mistake {
	wrong := r.readBots(a)
	if wrong != nil || len(a.bots) > 0 {
		return wrong
	}
	if said := r.word(); said != "" {
		return mistakeOf("not a bot", said, r.bots)
	}
	return mistakeOf("which bot", a.verb, r.bots)
}

func (r *reader) readMute(a *asked) *mistake {
	if wrong := r.readSomeBots(a); wrong != nil {
		return wrong
	}
	if c, _ := utf8.DecodeRuneInString(r.rest); fold(c) < '0' || fold(c) > '9' {
		return nil
	}
	return r.readDuration(a)
}

// readAnswer reads a mode, a bot, or the mode default with its bot.
func (r *reader) readAnswer(a *asked) *mistake {
	if after := *r; !r.atMention() {
		said := after.word()
		for mode, words := range modeWords {
			if words.is(said) {
				a.mode, r.rest = mode, after.rest
				r.separators()
			}
		}
	}
	if a.mode != "" && (a.mode != ModeDefault || r.rest == "") {
		return nil
	}
	agent, shown := r.bot()
	if len(here([]relay.AgentName{agent}, r.bots)) == 0 {
		if said := cmp.Or(shown, r.word()); said != "" {
			return mistakeOf("answers not", said, r.bots)
		}
		return mistakeOf("who answers", r.bots)
	}
	a.mode, a.bots = ModeDefault, []relay.AgentName{agent}
	return nil
}

func (r *reader) readNumber(a *asked) *mistake {
	said, ok := r.word(), false
	if a.n, ok = number(said); !ok {
		a.n, a.noNumber, r.rest = -1, said, ""
	}
	return nil
}

func (r *reader) readState(a *asked) *mistake {
	said := r.word()
	for on, words := range stateWords {
		if words.is(said) {
			a.on = on
			return nil
		}
	}
	if said == "" {
		return mistakeOf("on or off")
	}
	return mistakeOf("not on or off", said)
}

// isContinue reports whether a person's message only asks that what was stopped goes on, and of which bots: those
// mentioned, or named behind an '@'; none: all.
func isContinue(said string, mentions []named, bots []Member) (of []relay.AgentName, is bool) {
	for _, m := range mentions {
		if m.agent == "" || m.text == "" {
			return nil, false
		}
		of = append(of, m.agent)
	}
	r := reader{rest: said, mentions: slices.Clone(mentions), bots: bots}
	before, ok := r.someBots()
	if !ok || !r.goOn() {
		return nil, false
	}
	behind, ok := r.someBots()
	if !ok || r.rest != "" {
		return nil, false
	}
	var once []relay.AgentName
	for _, agent := range slices.Concat(of, before, behind) {
		if !slices.Contains(once, agent) {
			once = append(once, agent)
		}
	}
	return once, true
}

// someBots reads mentions, and what separates them. It is not ok where one is no bot's.
func (r *reader) someBots() (agents []relay.AgentName, ok bool) {
	for {
		r.rest = strings.TrimLeftFunc(r.rest, isBetween)
		if !r.atMention() {
			return agents, true
		}
		agent, _ := r.bot()
		if agent == "" {
			return nil, false
		}
		agents = append(agents, agent)
	}
}

// goOn reads the words that let bots go on.
func (r *reader) goOn() bool {
	for _, word := range []string{"继续", "continue"} {
		if rest, ok := cutFold(r.rest, word); ok {
			r.rest = rest
			return true
		}
	}
	after, _ := cutFold(r.rest, "go")
	on := strings.TrimLeftFunc(after, unicode.IsSpace)
	rest, ok := cutFold(on, "on")
	r.rest = rest
	return ok && on != after
}

// hasHan reports whether a text has Chinese characters: the language of a notice.
func hasHan(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return unicode.Is(unicode.Han, r) })
}

// reader goes through a command.
type reader struct {
	rest     string
	mentions []named // those not yet read
	bots     []Member
	names    *mention.Directory // nil until it is needed
}

const (
	ends      = ".。!！?？~～…"
	separates = ",，、;；:："
	wideAt    = "＠"
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
	for _, at := range []string{"@", wideAt} {
		if i := strings.Index(r.rest[:end], at); i > 0 {
			end = i
		}
	}
	word := r.rest[:end]
	r.rest = r.rest[end:]
	return cmp.Or(strings.TrimRightFunc(word, isEnd), word)
}

// atMention reports whether a mention comes: one of the platform's or a typed one.
func (r *reader) atMention() bool {
	return strings.HasPrefix(r.rest, "@") || strings.HasPrefix(r.rest, wideAt) || r.longest() >= 0
}

// longest is the index of the mention that comes, the longest of those that may, -1: none.
func (r *reader) longest() int {
	longest := -1
	for i, m := range r.mentions {
		if m.text != "" && strings.HasPrefix(r.rest, m.text) && (longest < 0 || len(m.text) > len(r.mentions[longest].text)) {
			longest = i
		}
	}
	return longest
}

// bot reads a mention or a name. Where that is no bot's, the agent is ""; shown is what was read then.
func (r *reader) bot() (agent relay.AgentName, shown string) {
	if r.names == nil {
		var agents []mention.Agent
		for _, b := range r.bots {
			agents = append(agents, mention.Agent{ID: string(b.Agent), Names: []string{b.Name}})
		}
		r.names = mention.NewDirectory(agents)
	}
	longest := r.longest()
	found, rest := r.names.Prefix(r.rest)
	if longest >= 0 && len(r.rest)-len(rest) <= len(r.mentions[longest].text) {
		m := r.mentions[longest]
		r.rest, r.mentions = r.rest[len(m.text):], slices.Delete(r.mentions, longest, longest+1)
		return m.agent, m.text
	}
	shown = r.rest[:len(r.rest)-len(rest)]
	r.rest = rest
	return relay.AgentName(found), shown
}

// several reads bots up to the first argument that is not a bot.
func (r *reader) several() (agents []relay.AgentName, wrong *mistake) {
	for ; r.rest != ""; r.separators() {
		mentioned := r.atMention()
		agent, shown := r.bot()
		switch {
		case len(here([]relay.AgentName{agent}, r.bots)) > 0:
			if !slices.Contains(agents, agent) {
				agents = append(agents, agent)
			}
		case mentioned:
			if shown == "" {
				shown = r.word()
			}
			return nil, mistakeOf("not a bot", shown, r.bots)
		default:
			return agents, nil
		}
	}
	return agents, nil
}

// commandWord reads one of words and returns it, "" if none comes. It does not go on as another word, except that a
// verb in Chinese may follow a Chinese word directly.
func (r *reader) commandWord(words []string) (word string) {
	var rest string
	for _, w := range words {
		after, ok := cutFold(r.rest, w)
		if !ok || len(w) <= len(word) {
			continue
		}
		next, _ := utf8.DecodeRuneInString(after)
		behind := reader{rest: after}
		_, verb := behind.verb()
		ended := strings.TrimFunc(after, isBetween) == "" || unicode.IsSpace(next) || strings.ContainsRune(",，、;；：", next)
		if ended || hasHan(w) && verb {
			word, rest = w, after
		}
	}
	if word != "" {
		r.rest = rest
	}
	return word
}

// verb reads a verb, an index of verbs: none is status. Arguments may follow one in Chinese directly.
func (r *reader) verb() (i int, known bool) {
	if r.rest == "" {
		return 0, true
	}
	after := *r
	said := after.word()
	for i, v := range verbs {
		if equalFold(said, string(v.verb)) || said == v.zh {
			r.rest = after.rest
			return i, true
		}
	}
	for i, v := range verbs {
		if rest, ok := strings.CutPrefix(r.rest, v.zh); ok {
			r.rest = rest
			return i, true
		}
	}
	return 0, false
}

// units of a duration, the longest first where one begins like another.
var units = []struct {
	word string
	of   time.Duration
}{
	{"minutes", time.Minute}, {"minute", time.Minute}, {"mins", time.Minute}, {"min", time.Minute}, {"m", time.Minute},
	{"hours", time.Hour}, {"hour", time.Hour}, {"h", time.Hour},
	{"days", 24 * time.Hour}, {"day", 24 * time.Hour}, {"d", 24 * time.Hour},
	{"分钟", time.Minute}, {"分", time.Minute}, {"小时", time.Hour}, {"天", 24 * time.Hour},
}

// parseDuration reads such as 30m, 1h30m and 2小时.
func parseDuration(text string) (d time.Duration, ok bool) {
	for text != "" {
		digits := strings.IndexFunc(text, func(c rune) bool { return fold(c) < '0' || fold(c) > '9' })
		if digits <= 0 {
			return 0, false
		}
		n, ok := number(text[:digits])
		if !ok || time.Duration(n) > maxPause/time.Minute {
			return maxPause + 1, ok
		}
		text, ok = text[digits:], false
		for _, u := range units {
			if rest, is := cutFold(text, u.word); is {
				text, ok = rest, true
				d += time.Duration(n) * u.of
				break
			}
		}
		if !ok || d > maxPause {
			return d, ok
		}
	}
	return d, d > 0
}

// number reads digits.
func number(text string) (n int, ok bool) {
	for _, c := range text {
		c = fold(c)
		if c < '0' || c > '9' || n > maxNumber {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, text != ""
}

// fold maps letters that differ in case, and full-width forms, to one.
func fold(r rune) rune {
	if '！' <= r && r <= '～' {
		r += '!' - '！'
	}
	return unicode.ToLower(r)
}

// cutFold is strings.CutPrefix for texts that fold makes equal. An empty prefix is none.
func cutFold(text, prefix string) (rest string, ok bool) {
	for _, p := range prefix {
		r, size := utf8.DecodeRuneInString(text)
		if size == 0 || fold(r) != fold(p) {
			return text, false
		}
		text = text[size:]
	}
	return text, prefix != ""
}

func equalFold(a, b string) bool {
	rest, ok := cutFold(a, b)
	return ok && rest == ""
}

// parse reads a person's message of this chat.
func (s *State) parse(m *relay.Message) (asked, bool) {
	if len(s.cfg.Commands) == 0 || m.MsgType != "" && m.MsgType != "text" && m.MsgType != "post" {
		return asked{}, false
	}
	bots := s.members()
	return parseCommand(m.Content, s.mentionedIn(m, bots), s.cfg.Commands, bots)
}

// mentionedIn are those whom a person's message mentions: a bot by its agent, else by its name, where one alone has it.
func (s *State) mentionedIn(m *relay.Message, bots []Member) (out []named) {
	for _, x := range m.Mentions {
		if x.Name == "" {
			continue
		}
		n := named{text: "@" + x.Name, isBot: x.AgentName != ""}
		for _, b := range bots {
			if b.Agent == x.AgentName {
				n.agent = b.Agent
				break
			}
			if x.AgentName == "" && b.Name == x.Name {
				if n.agent != "" {
					n.agent = ""
					break
				}
				n.agent = b.Agent
			}
		}
		out = append(out, n)
	}
	return out
}
