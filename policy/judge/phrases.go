package judge

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// The phrases that [Rules] takes for courtesies. Each list is the inside of a
// regular expression; a clause has to consist of them from end to end. Words that
// also carry content (help, support, an update) are only taken behind a thank-you.

// Chinese, in simplified characters.
const (
	zhYou   = `你们?|您们?|妳|大家|[两几]位|每一?位|各位|诸位|所有人|全体|伙伴们?|小伙伴们?|朋友们?|同学们?|同事们?|老师们?|团队|亲爱的|亲|大佬`
	zhFill  = `[啊呀哦噢哟喔哇诶哎唉嘛哈呢吧啦咯呐的]|那|那么|那就|真的|真是|也`
	zhVery  = `非常|十分|特别|真的?是?|太|超级?|很|极其?|相当|万分|衷心|再次|又|也|先|最后|在此|多|由衷|还是|实在`
	zhAck   = `好(?:的+|滴|哒|嘞|咧)?|嗯+呢?|哦+|噢+|喔|行|可以|没问题|没有问题|(?:我们?|已经?|都)*(?:收到|收悉|了解|明白|知道|知悉|懂|清楚|记下|记住)(?:了|啦)?|遵命|得令|是的|是|对的?|没错|确实|(?:我)?(?:也)?(?:同意|赞同|认同|同感)|已阅|没毛病|有道理|不错|哈+|嘻+|呵+|嘿+|ok了`
	zhKind  = `不(?:用|必)?客气|别客气|(?:` + zhYou + `)*太?客气(?:了|啦)|不用谢|不谢|没事|没关系|不要紧|应该的|(?:这是)?我应该做的|分内之事|小事(?:一桩)?|小意思|举手之劳|彼此彼此|过奖(?:了)?|不敢当|荣幸之至|(?:这是)?我的荣幸|不用了|不需要了|不必了|乐意(?:之至|效劳|帮忙)|欢迎(?:你|您|大家)?`
	zhBye   = `(?:` + zhYou + `|下次)*(?:再见|再会|拜拜|回见|回头见|明天见|下次见|下周见|周末见|改天见|后会有期|晚安|早安|早上好|上午好|中午好|下午好|晚上好|(?:你|您|大家|各位)好|嗨|哈喽|欢迎|恭喜(?:恭喜|发财|你|您|大家|了|啦)*|保重|保持联系|(?:好好|早点|注意|多)休息|注意身体)`
	zhWish  = `(?:` + zhVery + `|同|我|我们)*祝(?:福|愿)?\p{Han}{0,12}(?:愉快|快乐|顺利|好运|成功|开心|健康|如意|平安|大吉|进步|幸福|美好|好梦|安康|发财|都好)|(?:周末|合作|生活|旅途|假期|工作|用餐)愉快|\p{Han}{2,3}快乐|(?:一切|工作|万事)顺利|旅途平安|马到成功|玩得开心|好梦`
	zhNoun  = `的|对|给予|提供|做出|带来|一直以来|这段时间|今天|本次|这次|我们?|和|与|及|以及|、|配合|支持|帮助|帮忙|理解|耐心|辛勤|辛苦|付出|努力|工作|信任|反馈|提醒|解答|回复|回答|解释|说明|指导|指正|建议|意见|合作|协助|参与|关注|包容|认可|夸奖|鼓励|肯定|补充|确认|分享|信息|通知|更新|整理|总结|协作|同步|讨论|交流|收获|指教|照顾|告知|回应|经验|见解|观点|思路|想法|参考|解惑|用心|专业|很?有|及时|快速|迅速|详细|清晰|精彩|宝贵|全力|大力|热心|所有|了|啦`
	zhThank = `(?:` + zhVery + `)*(?:感谢|谢谢+|谢了|谢啦|多谢|谢|感激不尽|感激|感恩|鸣谢|致谢)(?:` + zhYou + `|` + zhNoun + `|` + zhFill + `)*|(?:` + zhVery + `|` + zhYou + `)*辛苦(?:` + zhYou + `|了|啦)*`
	zhDeg   = `(?:得|的)?(?:很|非常|十分|特别|太|真是|真的|真|超级?|极其?|相当|如此|这么)+`
	zhThing = `(?:这个|这份|你的|您的|你|您)?(?:回答|总结|分析|解释|建议|说明|讲解|整理|点子|主意|想法|思路|归纳|回复)`
	zhFine  = `好|棒|赞|专业|清楚|清晰|详细|到位|周到|全面|精彩|厉害|优秀|完美|给力|贴心|细致|用心|高效|及时|有帮助|有用|有道理|牛|强|不错`
	// An adjective without a degree may be a result ("整理好了"): few are taken.
	zhGood = `(?:` + zhThing + `)?` + zhDeg + `(?:` + zhFine + `)(?:了|啦|极了|呀|啊)*(?:的` + zhThing + `)?|(?:棒|赞|厉害|优秀|完美|给力|贴心|牛)(?:极了|呀|啊)*|(?:干|做|说|讲|写|想|考虑|总结|分析|解释)(?:得|的)(?:很|非常|太|真|十分)*(?:漂亮|对|` + zhFine + `)|(?:今天|本次|这次|我们)*的?(?:讨论|交流|分享|合作)(?:` + zhVery + `)*(?:有收获|有意义|有价值|愉快|顺利|精彩|充实)|学习了|受教了|受益匪浅|涨知识了|佩服|(?:给(?:你|您|大家))?点(?:个)?赞|加油|一起(?:加油|努力)|(?:我)?会?继续(?:加油|努力|保持)(?:的)?|我?会注意(?:的)?|下次注意`
	zhEnd  = `(?:那|今天|本次|我们)*(?:就|先)*(?:这样|到这里|到这儿|到此结束|到此为止)(?:吧|了|啦|哈)*|(?:本次|今天的?|这次|我们的?)?(?:讨论|对话|会话|交流|话题)(?:就?到?此?)结束(?:了|啦)?|告一段落|(?:我)?(?:这边)?(?:暂时)?没有?(?:其他|别的|什么)(?:问题|事|要补充的)(?:了|啦)?|没事了|暂无其他问题|(?:我)?(?:就)?不打扰(?:了|大家了|您了|你了)?|(?:不用|无需|不必)(?:再)?回复(?:了|我)*|散会`
	zhHere = `(?:我)?随时(?:都)?(?:在|待命|为(?:您|你|大家)(?:服务|效劳)|恭候|可以)|(?:很)?(?:高兴|开心|乐意|荣幸)(?:能够?)?(?:帮到|帮助|协助|为|和|与)?(?:` + zhYou + `)?(?:一起)?(?:服务|合作|工作|效劳|帮忙)?|希望(?:这|以上|这些)?(?:信息|内容|回答)?(?:能|会)?对?(?:` + zhYou + `)?(?:能)?有(?:所)?帮助|期待(?:与|和|我们|` + zhYou + `)*(?:的)?(?:下次|再次|下一次|后续)(?:的)?(?:合作|见面|交流)`

	zhIf   = `(?:如果|如|若|要是)?(?:` + zhYou + `)?(?:后续|以后|之后|今后|还|再)*有(?:任何|其他|其它|别的|什么|新的|更多|进一步|的)*(?:疑问|问题|需要|需求|不明白的?|不清楚的?)(?:地方)?(?:的话|时|的时候)?|(?:如果|如|若|要是|有)(?:` + zhYou + `)?(?:后续|以后|还|再)*需要?(?:任何|其他|其它|我|我们|进一步|更多|的)*(?:帮助|协助|支持|帮忙)?(?:的话|时|的时候)?|(?:还)?需要(?:我)?(?:帮助|协助|帮忙|支持)?(?:的话|的时候)`
	zhCall = `(?:叫|找|喊|联系|告诉|通知|问|咨询|@|艾特|告知|吩咐|说|提|提出|提问|呼叫|召唤|戳|cue|和|与|跟|沟通|交流)+(?:我们?|一声|即可|就行|就好|就可以|都可以|哦|哈|啊|呀|啦)*`
	zhCome = `(?:请|也|都|就|可以|可|再|直接|` + zhYou + `)*`
	zhTail = zhCome + `(?:随时|尽管|欢迎)(?:随时|欢迎|尽管|再|来|都可以|可以|` + zhYou + `)*` + zhCall
	zhCare = `(?:` + zhIf + `)(?:` + zhTail + `|` + zhCome + zhCall + `)|` + zhTail

	zhHelp = `(?:请问)?(?:您|你|大家)?还?有(?:什么|其他|其它|别的|任何|哪些|啥)+(?:事情?|地方|问题|需要)?是?(?:我|我们)?(?:可以|能够?|需要)?(?:帮助?|协助|为)到?(?:您|你|大家)?(?:做|忙|效劳|服务)?的?(?:事情?|地方)?(?:吗|么|呢)?|(?:请问)?还?需要(?:我)?(?:帮忙|帮助|协助)(?:什么|别的)?(?:吗|么)?`
)

// English, in lower case and without apostrophes.
const (
	enFill  = `oh|ah|well|so|then|everyone|everybody|all|both|team|guys|folks|friends?|again|very|really|much|there|and|just|too|haha\w*|hehe\w*|lol|hmm+|buddy|mate|sir|dear`
	enGreat = `great|perfect|awesome|nice|cool|excellent|fantastic|wonderful|amazing|brilliant|lovely|good|impressive|superb`
	enAck   = `ok|okay|okey|okie|okk+|k|kk|sure(?: thing)?|alright|all right|right|got (?:it|that)|gotcha|understood|noted|roger(?: that)?|copy that|(?:that )?sounds (?:good|great|perfect|fine)|same here|(?:that |this |it )?(?:really )?helps(?: a lot)?|youre the best|sweet dreams|makes sense|fair enough|(?:thats |this is |that is |its )?(?:` + enGreat + `)(?: one| stuff| to (?:hear|know))?|sounds like a plan|(?:thats |this is |what )*(?:` + enGreat + `) (?:news|to hear)|(?:i )?will (?:keep (?:that|it|this) in mind|do my best)|(?:` + enGreat + `) (?:job|work|catch|point|idea|answer|summary|explanation|analysis|teamwork|effort)|well (?:done|said)|indeed|exactly|absolutely|definitely|of course|certainly|agreed|i agree|yes|yep|yeah|yup|good to (?:know|hear)|all good|(?:very |super |really |thats |this is )*helpful`
	enKind  = `no problem(?: at all)?|np|no worries|youre (?:very |most |always |so )?welcome|welcome|any ?time|my pleasure|(?:its )?(?:my|our) pleasure|with pleasure|(?:im |always |were )*happy to (?:help|assist)|(?:im |were |i am |we are |so |very )*(?:glad|happy|pleased)(?: (?:to|be|of|that|it|this|everything|everyone|all|its|i|we|were|was|are|you|youre|could|can|hear|help|helped|helps|assist|assistance|service|useful|helpful|worked|works|out|aligned|on the same page|found|find|like|liked|enjoyed))*|(?:it was |its been |its |was )*(?:a |my |such a |our )*(?:real |great |true )*pleasure (?:to )?(?:work|working|collaborat(?:e|ing)|chatting|talking|meeting|help|helping|assist|assisting)(?: (?:with|you|all|everyone|both|together|the team|on this))*|dont mention it|its nothing|not at all|hope (?:this|that|it) helps`
	enThank = `(?:many |much |lots of |big |huge |a lot of )*(?:thanks|thank (?:you|u)|thx|tks|ty|tysm|cheers|much appreciated|appreciated|(?:i )?(?:really |truly |do |very much )*appreciate (?:it|that|this|you|your|the|all))(?: (?:so|very|a|much|lot|ton|million|again|everyone|everybody|all|team|guys|folks|both|in advance|for|the|your|you|that|this|it|all|being|sharing|letting (?:me|us) know|help|support|patience|time|efforts?|feedback|cooperation|collaboration|hard|quick|great|kind|detailed|clear|prompt|response|reply|updates?|info|information|explanation|clarification|confirming|confirmation|heads up|reminder|work|and|understanding|of|helping|answering|inputs?|assistance|attention|words|clarifying|explaining|checking|looking into|joining|participating|pointing|out|catching|everything|discussion|conversation|insights?|insightful|thoughts?|thoughtful|thorough|valuable|perspectives?|suggestions?|guidance|advice|tips?|contributions?|kindness|bunch|once|heads|up|having me|today))*`
	enBye   = `(?:good ?)?bye(?: bye| for now)?|(?:catch|see) (?:you|ya)(?: later| soon)?|talk to (?:you|ya) (?:later|soon)|see (?:you|ya)(?: (?:later|soon|tomorrow|around|next|time|week|then|all|everyone))*|later|talk (?:to you )?(?:later|soon)|take care|(?:hope )?(?:you )?have a (?:very )?(?:` + enGreat + `|productive|pleasant|restful|relaxing|safe) (?:day|weekend|evening|night|one|week|time|rest of (?:your|the) day|afternoon|trip|holiday)(?: ahead)?|enjoy (?:your|the) (?:day|weekend|evening|holidays?|week|rest of (?:your|the) day)|good (?:night|morning|evening|afternoon|luck|day)|happy (?:weekend|new year|holidays|friday|birthday)|wishing (?:you|everyone|all|you all) all the best|best(?: of luck| wishes| regards)?|(?:kind )?regards|you (?:too|as well)|same to you|likewise|all the best|stay safe|rest well|hi|hello|hey|congrats|congratulations|cheers|keep up the (?:good|great) work`
	enEnd   = `(?:thats|that is|that was|this is) (?:all|it|everything)(?: (?:from me|for now|for today|then|i needed))*|nothing (?:else|more)(?: (?:from|on) (?:me|my side|my end))?|no (?:further|more|other) questions(?: (?:from|on) (?:me|my side|my end))?|looking forward to (?:it|that|next time|working (?:together|with (?:you|everyone|all|the team))(?: again)?|our next (?:chat|collaboration|meeting|session))`

	enIf   = `if (?:you|anyone|u|there(?:s| is| are))(?: ever| still| do)?(?: (?:need|want|require))? (?:any(?:thing)?|something|more|further|help|assistance|support|me)(?: (?:anything|more|further|other|else|additional|help|assistance|support|clarification|information|info|details|from me|with (?:anything|this|that)|again|in the future|(?:i|we) can (?:help|do|assist)(?: (?:you|with|for|out))*))*|if i can (?:help|assist|do anything)(?: (?:you|with|anything|else|for|out))*|if (?:you|anyone|u|there(?:s| is| are))(?: (?:have|has|think of))? (?:anything(?: else)?|(?:any|other|more|further)(?: (?:other|more|further|additional))* (?:questions?|concerns?|doubts?)(?: or (?:questions?|concerns?|doubts?))*)`
	enFree = `(?:please |just |and |but |or |so )*(?:feel free to|dont hesitate to) (?:ask|reach out|contact|let (?:me|us) know|ping|message|call on|get in touch|tag|mention)(?: (?:to|me|us|any ?time|at any time|again|with|questions|further))*`
	enHere = `(?:im|ill be|i am|were|we are) (?:always |still |right )*(?:here|around|available)(?: (?:to help|to assist|any ?time|for you|whenever you need(?: me)?))*`
	enTell = `(?:please |just |do |always |and |but |so )*(?:let (?:me|us) know|ping (?:me|us)|reach out|ask(?: away| me)?|just ask|call (?:me|us)|contact (?:me|us)|tag me|mention me|shout)(?: (?:any ?time|at any time|directly|again))*`
	enCare = `(?:` + enFree + `|` + enHere + `)(?: (?:` + enIf + `))?|(?:` + enTell + `) (?:` + enIf + `)|(?:and |but |so )*(?:` + enIf + `) (?:` + enFree + `|` + enHere + `|` + enTell + `)`

	enHelp = `(?:is there |so )*(?:anything|something) (?:else )?(?:that )?(?:i|we) (?:can|could|may) (?:help|do|assist)(?: (?:you|with|for|today|out|u))*|how (?:can|may|could) i (?:help|assist)(?: you)?(?: (?:today|further))*|anything else`
)

const (
	zhCourtesy = zhThank + `|` + zhCare + `|` + zhWish + `|` + zhHere + `|` + zhEnd + `|` + zhKind + `|` + zhBye + `|` + zhGood + `|` + zhAck
	enCourtesy = enThank + `|` + enCare + `|` + enEnd + `|` + enKind + `|` + enBye + `|` + enAck
	courtesy   = `(?:` + zhCourtesy + `)|\b(?:` + enCourtesy + `)\b|6{3,}|\+1\b|yyds`
	filler     = `(?:` + zhFill + `|` + zhVery + `)|\b(?:` + enFill + `)\b|\s`
)

// The large expressions are compiled when the rules are first asked: a sidecar
// with a language model never needs their megabytes.
var (
	phrases        = compiled(`^(?:` + courtesy + `|` + filler + `)+$`)
	filling        = compiled(`^(?:` + filler + `)+$`)
	politeOffer    = compiled(`^(?:` + filler + `)*(?:(?:` + zhIf + `) (?:` + zhTail + `|` + zhCome + zhCall + `)|` + enCare + `)(?:` + filler + `)*$`)
	politeQuestion = compiled(`^(?:` + filler + `)*(?:` + zhHelp + `|` + enHelp + `)$`)
)

// compiled returns a test of a clause.
func compiled(expression string) func(words string) bool {
	re := sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
	return func(words string) bool { return re().MatchString(words) }
}

// polite tells a clause that holds at least one courtesy and nothing else.
func polite(words string) bool { return phrases(words) && !filling(words) }

var (
	// sociable is what is said to somebody by name.
	sociable = regexp.MustCompile(`谢|辛苦|客气|再见|拜拜|你好|\b(?:thanks?|thx|cheers|welcome|bye|hi|hello|hey|well done|job|work)\b`)
	assent   = regexp.MustCompile(`好|可以|行|是|对|同意|没问题|没错|不用|不需要|不必|\b(?:ok|okay|yes|yep|yeah|yup|sure|agreed|right|definitely|absolutely|of course|certainly)\b|[👍✅🆗👌👎❌]|\[(?:ok|赞)\]`)

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
	case '@', '%', '&', '§', '\'':
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
