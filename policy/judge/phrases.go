package judge

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// An offer of help may be a question; it is the only one that needs no answer. These
// two are the inside of a regular expression.
const (
	zhHelp = `(?:请问)?(?:您|你|大家)?还?有(?:什么|其他|其它|别的|任何|哪些|啥)+(?:事情?|地方|问题|需要)?是?(?:我|我们)?(?:可以|能够?|需要)?(?:帮助?|协助|为)到?(?:您|你|大家)?(?:做|忙|效劳|服务)?的?(?:事情?|地方)?(?:吗|么|呢)?|(?:请问)?还?需要(?:我)?(?:帮忙|帮助|协助)(?:什么|别的)?(?:吗|么)?`
	enHelp = `(?:is there |so )*(?:anything|something) (?:else )?(?:that )?(?:i|we) (?:can|could|may) (?:help|do|assist)(?: (?:you|with|for|today|out|u))*|how (?:can|may|could) i (?:help|assist)(?: you)?(?: (?:today|further))*|anything else`
)

const politeFiller = `[啊呀哦噢嗯哈那]|那么|\b(?:oh|ah|well|so|then|everyone|team|guys|all|and|just|great|ok|okay)\b|\s`

var politeQuestion = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:` + politeFiller + `)*(?:` + zhHelp + `|` + enHelp + `)$`)
})

var (
	assent = regexp.MustCompile(`好|可以|行|是|对|同意|没问题|没错|不用|不需要|不必|\b(?:ok|okay|yes|yep|yeah|yup|sure|agreed|right|definitely|absolutely|of course|certainly)\b|[👍✅🆗👌👎❌]|\[(?:ok|赞)\]`)

	questionWord = regexp.MustCompile(`(?:吗|么|呢|谁|哪里?|多少|什么)$`)
	request      = regexp.MustCompile(`[?]|吗|呢$|谁|怎么|怎样|如何|为什么|为何|什么|哪|多少|能不能|能否|可否|是否|有没有|请|帮|麻烦|需要|求助|想要|给我|告诉|看看|看一下|看下|\b(?:who|what|when|where|why|how|which|can|could|would|should|please|help|need|anyone|anybody|someone|is there|are there|does|do you)\b`)
)

// faceNames are the codes in brackets that stand for emoji in chats. Others, as
// for a picture or a file, are content.
const faceNames = `微笑|呲牙|赞|强|玫瑰|爱心|抱拳|ok|鼓掌|加油|庆祝|比心|握手|憨笑|偷笑|送心|感谢|谢谢|可爱|害羞|大笑|笑哭|撒花|玫瑰花|拥抱|奋斗|胜利|得意|调皮|smile|thumbsup|thanks|heart|clap|done|finger ?heart|applause|party|wave`

// traditional characters of the phrases above, and what they are folded to.
var simplified = strings.NewReplacer(
	"謝", "谢", "請", "请", "沒", "没", "問", "问", "題", "题", "辦", "办", "話", "话", "樂", "乐", "還", "还", "隨", "随",
	"時", "时", "歡", "欢", "會", "会", "對", "对", "們", "们", "這", "这", "說", "说", "麼", "么", "幫", "帮", "願", "愿",
	"週", "周", "順", "顺", "進", "进", "開", "开", "節", "节", "聯", "联", "繫", "系", "係", "系", "給", "给", "為", "为",
	"寶", "宝", "貴", "贵", "協", "协", "與", "与", "討", "讨", "論", "论", "結", "结", "國", "国", "後", "后", "讚", "赞",
	"贊", "赞", "優", "优", "賀", "贺", "務", "务", "應", "应", "該", "该", "氣", "气", "嗎", "吗", "勞", "劳", "資", "资",
	"訊", "讯", "復", "复", "覆", "复", "饋", "馈", "參", "参", "議", "议", "見", "见", "瞭", "了", "實", "实", "點", "点",
	"學", "学", "習", "习", "專", "专", "業", "业", "細", "细", "緻", "致", "詳", "详", "厲", "厉", "妳", "你", "訴", "诉",
	"總", "总", "導", "导", "榮", "荣", "幸", "幸", "嘍", "喽", "個", "个", "從", "从", "動", "动", "無", "无", "關", "关",
	"強", "强", "帶", "带", "來", "来", "補", "补", "確", "确", "認", "认", "經", "经", "間", "间", "誰", "谁", "過", "过",
	"獎", "奖", "棧", "栈", "熱", "热", "萬", "万", "聽", "听", "錯", "错", "懂", "懂",
)

// fold brings a text into the form of the phrases: simplified, lower case,
// without compatibility forms and invisible characters.
func fold(s string) string {
	return simplified.Replace(strings.ToLower(plain(s)))
}

// endsClause tells punctuation. Signs that are part of numbers, names and
// formulas are none: they stay, and what holds them is no courtesy.
func endsClause(r rune) bool {
	switch r {
	case '@', '%', '&', '§', '\'', '_', '、':
		return false
	case '~', '\n', '\t', '|':
		return true
	}
	return unicode.IsPunct(r)
}

// isDecoration tells emoji and ornaments.
func isDecoration(r rune) bool {
	return unicode.In(r, unicode.So, unicode.Sk, unicode.Mn)
}

func longestFirst(names []string) []string {
	names = slices.DeleteFunc(names, func(s string) bool { return strings.TrimSpace(s) == "" })
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(len(b), len(a)), strings.Compare(a, b))
	})
	return slices.Compact(names)
}
