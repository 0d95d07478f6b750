package steer

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"feishu-relay/internal/spelling"
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

// chinese are the verbs' words in Chinese; in English, a verb is its own word.
var chinese = map[Verb]string{
	VerbStatus: "状态", VerbHelp: "帮助", VerbPause: "暂停", VerbResume: "恢复", VerbMute: "静音",
	VerbUnmute: "取消静音", VerbAnswer: "回答", VerbLimit: "上限", VerbThreshold: "阈值", VerbJudge: "裁判",
	VerbBudget: "预算", VerbContinue: "继续", VerbStop: "停止", VerbWhy: "为什么", VerbForget: "还原",
}

// Verbs lists the verbs in the order of the help.
var Verbs = []Verb{VerbStatus, VerbHelp, VerbPause, VerbResume, VerbMute, VerbUnmute, VerbAnswer, VerbLimit,
	VerbThreshold, VerbJudge, VerbBudget, VerbContinue, VerbStop, VerbWhy, VerbForget}

// The words of the modes, and of the judge's two states: English, Chinese.
var (
	modeWords = map[Mode][2]string{
		All: {"all", "全部"}, Named: {"named", "点名"}, Default: {"default", "默认"}, One: {"one", "一个"}}
	stateWords = map[bool][2]string{true: {"on", "开"}, false: {"off", "关"}}
)

// Said is what a person said.
type Said struct {
	Text     string
	Mentions []Mentioned
}

// Mentioned is somebody whom a person mentioned.
type Mentioned struct {
	Text  string          // as it is in the text: "@BotB"
	Agent relay.AgentName // "": no bot that has a sidecar
	IsBot bool            // it is a bot's, whether or not that has a sidecar
}

// Asked is a command.
type Asked struct {
	Verb     Verb
	Chinese  bool              // the answer's language; else English
	Bots     []relay.AgentName // those named, each once
	For      time.Duration     // of pause and mute; 0: until somebody ends it
	Mode     Mode              // of answer; Default with a bot: that one is the default bot
	N        int               // of limit, threshold and budget; -1: no number was given, see Changes
	NoNumber string            // what was given then, "" for nothing
	On       bool              // of judge
	Mistake  *Mistake          // what the person got wrong; nothing is executed then
}

// ParseCommand reads a person's message. It is a command if it begins with one of words,
// alone or behind mentions of bots.
func ParseCommand(said Said, words []string, bots []Bot) (c Asked, is bool) {
	r := reader{rest: said.Text, mentions: slices.Clone(said.Mentions), bots: bots}
	r.blanks()
	for r.atMention() {
		if i := r.longest(); i >= 0 && r.mentions[i].IsBot && r.mentions[i].Agent == "" { // one without a sidecar
			r.rest = r.rest[len(r.mentions[i].Text):]
		} else if agent, _ := r.bot(); agent == "" {
			return c, false
		}
		r.separators()
	}
	word := r.commandWord(words)
	if word == "" {
		return c, false
	}
	c.Chinese = HanIn(word)
	c.Mistake = r.command(&c, word)
	return c, true
}

// command reads what is behind the command word.
func (r *reader) command(c *Asked, word string) *Mistake {
	r.separators()
	var known bool
	if c.Verb, known = r.verb(); !known {
		asked := r.word()
		return unknownWord(word, asked, nearest(asked))
	}
	r.separators()
	if wrong := r.arguments(c); wrong != nil {
		return wrong
	}
	r.separators()
	if left := r.word(); left != "" {
		return unexpected(left, c.Verb)
	}
	return nil
}

func (r *reader) arguments(c *Asked) (wrong *Mistake) {
	switch c.Verb {
	case VerbPause:
		c.For, wrong = r.duration()
	case VerbMute, VerbUnmute, VerbContinue:
		if c.Bots, wrong = r.several(); wrong != nil {
			return wrong
		}
		if len(c.Bots) == 0 && c.Verb != VerbContinue {
			return whichBot(c.Verb, r.word(), r.bots)
		}
		if c.Verb == VerbMute && r.atDigit() {
			c.For, wrong = r.duration()
		}
	case VerbAnswer:
		wrong = r.answer(c)
	case VerbLimit, VerbThreshold, VerbBudget:
		asked, ok := r.word(), false
		if c.N, ok = number(asked); !ok {
			c.N, c.NoNumber, r.rest = -1, asked, ""
		}
	case VerbJudge:
		asked := r.word()
		for on, words := range stateWords {
			if slices.ContainsFunc(words[:], func(w string) bool { return equalFold(asked, w) }) {
				c.On = on
				return nil
			}
		}
		return badState(asked)
	}
	return wrong
}

// answer reads a mode, a bot, or the mode default with its bot.
func (r *reader) answer(c *Asked) *Mistake {
	if after := *r; !r.atMention() {
		asked := after.word()
		for mode, words := range modeWords {
			if slices.ContainsFunc(words[:], func(w string) bool { return equalFold(asked, w) }) {
				c.Mode, r.rest = mode, after.rest
				r.separators()
			}
		}
	}
	if c.Mode != "" && (c.Mode != Default || r.rest == "") {
		return nil
	}
	agent, shown := r.bot()
	if !r.has(agent) {
		return badAnswer(cmp.Or(shown, r.word()), r.bots)
	}
	c.Mode, c.Bots = Default, []relay.AgentName{agent}
	return nil
}

// IsContinue reports whether a person's message only asks that what was stopped goes on,
// and of which bots: those mentioned, or named behind an '@', before and behind it, none for all.
func IsContinue(said Said, bots []Bot) (named []relay.AgentName, is bool) {
	var mentioned []relay.AgentName
	for _, m := range said.Mentions {
		if m.Agent == "" || m.Text == "" {
			return nil, false
		}
		mentioned = append(mentioned, m.Agent)
	}
	r := reader{rest: said.Text, mentions: slices.Clone(said.Mentions), bots: bots}
	before, ok := r.someBots()
	if !ok || !r.goOn() {
		return nil, false
	}
	behind, ok := r.someBots()
	if !ok || r.rest != "" {
		return nil, false
	}
	for _, agent := range slices.Concat(mentioned, before, behind) {
		if !slices.Contains(named, agent) {
			named = append(named, agent)
		}
	}
	return named, true
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
	rest, ok := cutFold(r.rest, "继续")
	if !ok {
		rest, ok = cutFold(r.rest, "continue")
	}
	if after, is := cutFold(r.rest, "go"); is {
		on := strings.TrimLeftFunc(after, unicode.IsSpace)
		rest, ok = cutFold(on, "on")
		ok = ok && on != after
	}
	r.rest = rest
	return ok
}

// HanIn reports whether a text has Chinese characters: the language of a notice.
func HanIn(text string) bool {
	return strings.ContainsFunc(text, func(r rune) bool { return unicode.Is(unicode.Han, r) })
}

// reader goes through a command.
type reader struct {
	rest     string
	mentions []Mentioned // those not yet read
	bots     []Bot
	names    *mention.Directory // nil until it is needed
}

// ends are the characters that end a sentence, separates those between arguments.
const (
	ends      = ".。!！?？~～…"
	separates = ",，、;；:："
	wideAt    = '＠'
)

func isEnd(r rune) bool       { return strings.ContainsRune(ends, r) }
func isSeparator(r rune) bool { return unicode.IsSpace(r) || strings.ContainsRune(separates, r) }
func isBetween(r rune) bool   { return isSeparator(r) || isEnd(r) }

// trim is text without blanks and punctuation around it.
func trim(text string) string {
	return strings.TrimFunc(text, isBetween)
}

func (r *reader) blanks() { r.rest = strings.TrimLeftFunc(r.rest, unicode.IsSpace) }

// separators goes on to the next argument; what only ends a sentence is none.
func (r *reader) separators() {
	r.rest = strings.TrimLeftFunc(r.rest, isSeparator)
	if trim(r.rest) == "" {
		r.rest = ""
	}
}

// word reads up to the next separator or mention, and leaves out the end of a sentence.
func (r *reader) word() string {
	end := len(r.rest)
	for i, c := range r.rest {
		if isSeparator(c) || i > 0 && (c == '@' || c == wideAt) {
			end = i
			break
		}
	}
	word := r.rest[:end]
	r.rest = r.rest[end:]
	if short := strings.TrimRightFunc(word, isEnd); short != "" {
		return short
	}
	return word
}

func (r *reader) atDigit() bool {
	c, _ := utf8.DecodeRuneInString(r.rest)
	return '0' <= fold(c) && fold(c) <= '9'
}

// atMention reports whether a mention comes: one of the platform's or a typed one.
func (r *reader) atMention() bool {
	return strings.HasPrefix(r.rest, "@") || strings.HasPrefix(r.rest, string(wideAt)) || r.longest() >= 0
}

// longest is the index of the mention that comes, the longest of those that may, -1: none.
func (r *reader) longest() int {
	longest := -1
	for i, m := range r.mentions {
		if m.Text != "" && strings.HasPrefix(r.rest, m.Text) &&
			(longest < 0 || len(m.Text) > len(r.mentions[longest].Text)) {
			longest = i
		}
	}
	return longest
}

// bot reads a mention or a name. Where that is no bot's, the agent is ""; shown is what
// was read then, "" where that is nothing.
func (r *reader) bot() (agent relay.AgentName, shown string) {
	if r.names == nil {
		var agents []mention.Agent
		for _, b := range r.bots {
			agents = append(agents, mention.Agent{ID: string(b.Agent), Names: []string{b.Name}})
		}
		r.names = mention.NewDirectory(agents)
	}
	longest := r.longest()
	named, rest := r.names.Prefix(r.rest)
	if longest >= 0 && len(r.rest)-len(rest) <= len(r.mentions[longest].Text) {
		m := r.mentions[longest]
		r.rest, r.mentions = r.rest[len(m.Text):], slices.Delete(r.mentions, longest, longest+1)
		return m.Agent, m.Text
	}
	shown = r.rest[:len(r.rest)-len(rest)]
	r.rest = rest
	return relay.AgentName(named), shown
}

func (r *reader) has(agent relay.AgentName) bool {
	return slices.ContainsFunc(r.bots, func(b Bot) bool { return b.Agent == agent })
}

// several reads bots up to the first argument that is not a bot.
func (r *reader) several() (agents []relay.AgentName, wrong *Mistake) {
	for ; r.rest != ""; r.separators() {
		mentioned := r.atMention()
		agent, shown := r.bot()
		switch {
		case agent != "" && r.has(agent):
			if !slices.Contains(agents, agent) {
				agents = append(agents, agent)
			}
		case mentioned:
			if shown == "" {
				shown = r.word()
			}
			return nil, unknownBot(shown, r.bots)
		default:
			return agents, nil
		}
	}
	return agents, nil
}

// commandWord reads one of words and returns it, "" if none comes. It does not go on as
// another word, except that a verb in Chinese may follow a Chinese word directly.
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
		ended := trim(after) == "" || unicode.IsSpace(next) || strings.ContainsRune(",，、;；：", next)
		if ended || HanIn(w) && verb {
			word, rest = w, after
		}
	}
	if word != "" {
		r.rest = rest
	}
	return word
}

// verb reads a verb: none is status. Arguments may follow one in Chinese directly.
func (r *reader) verb() (v Verb, known bool) {
	if r.rest == "" {
		return VerbStatus, true
	}
	after := *r
	asked := after.word()
	for _, v := range Verbs {
		if equalFold(asked, string(v)) || asked == chinese[v] {
			r.rest = after.rest
			return v, true
		}
	}
	for _, v := range Verbs {
		if rest, ok := strings.CutPrefix(r.rest, chinese[v]); ok {
			r.rest = rest
			return v, true
		}
	}
	return "", false
}

// meant are the verbs that words which are no verb's stand for.
var meant = map[string]string{"停": "停止", "限制": "上限", "unpause": "resume"}

// nearest is the verb that another word or a misspelt one was meant to be, in its language, or "".
func nearest(asked string) string {
	if word, ok := meant[strings.ToLower(asked)]; ok {
		return word
	}
	best, edits := "", 3
	if len(asked) > 64 {
		return best
	}
	for _, v := range Verbs {
		for _, word := range []string{string(v), chinese[v]} {
			most := min(max(utf8.RuneCountInString(word)/3, 1), edits-1)
			if spelling.Near(strings.ToLower(asked), word, most) {
				best, edits = word, spelling.Distance(strings.ToLower(asked), word)
			}
		}
	}
	return best
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

// duration reads a time, if anything comes.
func (r *reader) duration() (time.Duration, *Mistake) {
	if r.rest == "" {
		return 0, nil
	}
	asked := r.word()
	if _, ok := number(asked); ok { // "30 m"
		after := *r
		after.separators()
		if d, ok := parseDuration(asked + after.word()); ok && inBounds(d) {
			r.rest = after.rest
			return d, nil
		}
	}
	d, ok := parseDuration(asked)
	if !ok || !inBounds(d) {
		return 0, badTime(asked)
	}
	return d, nil
}

func inBounds(d time.Duration) bool { return d > 0 && d <= MaxPause }

// parseDuration reads such as 30m, 1h30m and 2小时.
func parseDuration(text string) (d time.Duration, ok bool) {
	for text != "" {
		digits := strings.IndexFunc(text, func(c rune) bool { return fold(c) < '0' || fold(c) > '9' })
		if digits <= 0 {
			return 0, false
		}
		n, ok := number(text[:digits])
		if !ok || time.Duration(n) > MaxPause/time.Minute {
			return MaxPause + 1, ok
		}
		text, ok = text[digits:], false
		for _, u := range units {
			rest, is := cutFold(text, u.word)
			if is {
				text, ok = rest, true
				d += time.Duration(n) * u.of
				break
			}
		}
		if !ok || d > MaxPause {
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

// cutFold is strings.CutPrefix for texts that [fold] makes equal. An empty prefix is none.
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
