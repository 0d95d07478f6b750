package judge

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// politeQuestion matches an offer of help, the only question that needs no answer.
var politeQuestion = sync.OnceValue(func() *regexp.Regexp {
	const (
		filler = `[啊呀哦噢嗯哈那]|那么|请问|\b(?:oh|ah|well|so|then|everyone|team|guys|all|and|just|great` +
			`|ok|okay)\b|\s`
		zhYou  = `(?:您|你|你们|大家|各位)?(?:这边)?`
		zhMore = `还?有(?:没有)?(?:什么|其他|其它|别的|任何|哪些|啥)+`
		zhHelp = zhYou + `还?有(?:没有)?(?:其他|其它|别的|任何)(?:什么|任何)?(?:的|事情?|问题|疑问|需要` +
			`|需求)?(?:吗|么|呢)?` +
			`|` + zhYou + `还有(?:没有)?(?:什么|啥|哪些)(?:其他|其它|别的)?的?(?:想问的|要问的|事情?|问题` +
			`|疑问|需要|需求|不明白的|不清楚的)?(?:吗|么|呢)?` +
			`|` + zhYou + zhMore + `的?(?:事情?|地方|问题|需要)?是?(?:需要)?(?:我|我们)?(?:可以|能够?` +
			`|需要)?(?:帮助?|协助|为|效劳)到?` +
			`(?:您|你|大家)?(?:做|忙|效劳|服务|解答|解决)?的?(?:事情?|地方)?(?:吗|么|呢)?` +
			`|` + zhYou + `还?需要(?:我|我们)?(?:再|继续)?(?:帮忙|帮助|协助|帮(?:您|你)?(?:做|处理))(?:点` +
			`|些)?(?:什么|别的|其他的?)?(?:吗|么|呢)?`
		enAny  = `(?:anything|something|any other thing|nothing) ?(?:else|more|further)?`
		enDo   = `(?:help|do|assist|support|be of (?:any |more |further )*(?:help|service|assistance))`
		enTail = `(?: (?:you|u|with|for|on|out|about|today|tonight|now|at (?:the|this) (?:moment|time)` +
			`|further|me|to|do|right now|need|else))*`
		enHelp = `(?:(?:is|was|will) there (?:be )?|do you (?:need|want|require) |would you (?:like|need|want) |` +
			`(?:can|could|may|should|shall) (?:i|we) (?:be of |also )?(?:help|do|assist|get` +
			`|offer)?(?: (?:you|u|further))*(?: (?:with|for|in|to do))* ?|` +
			`(?:do you )?(?:want|need)(?: help with)? ?|so |what about )*` +
			enAny + ` (?:(?:that )?(?:i|we) (?:can|could|may|might) ` + enDo + `|you need|you want` +
			`|you would like|youd like|to help you|help|today|for you|for now)` + enTail +
			`|(?:can|could|may|should|shall) (?:i|we) ` + enDo + ` (?:you |further )*(?:with ` +
			`|in )?` + enAny + enTail +
			`|(?:can|could|may|how (?:can|may|could|else can)|what (?:more|else) can) (?:i|we) (?:be ` +
			`|further )?` + enDo + enTail +
			`|(?:do you |would you )?(?:need|want|require|like) (?:any |some )?(?:other |more |further ` +
			`|additional )?(?:help|assistance)` + enTail
	)
	return regexp.MustCompile(`^(?:` + filler + `)*(?:` + zhHelp + `|` + enHelp + `)$`)
})

var (
	// moreOffer matches an offer of help from this agent.
	moreOffer = regexp.MustCompile(`\b(?:anything|something) ?(?:else|more|further|other)\b|\b(?:any` +
		`|some) ?(?:more|further|other) (?:help|assistance|questions?|requests?|way|things?)\b|\banymore\b` +
		`|\b(?:anything|any thing|something) (?:that )?i (?:can|could|may)\b|\bwhat else\b`)
	// bareOffer matches a clause that is an offer of help if others write it, unless it asks for more
	// of the same.
	bareOffer = regexp.MustCompile(`^(?:(?:ok|okay|so|and|well|great|thanks|alright|sure) )*(?:(?:is` +
		`|will) there (?:be )?|(?:do you )?(?:need|want) )?(?:anything|something) ?(?:else|more` +
		`|further)(?: then| today)*$`)
)

// openRequest matches a clause that asks for a confirmation, an approval, a choice or
// permission, with or without a question mark.
var openRequest = sync.OnceValue(func() *regexp.Regexp {
	const (
		zhAct = `(?:确认|核[对实准]|审[批核阅]|批[准复示一]|指示|拍板|定夺|决定|表决|投票|[回答]复|告[知诉]` +
			`|选|点头|过[目一]|签[字收]|查收|授权|许可|同意|` +
			`confirm|approve|review|check)`
		enAct = `(?:confirm|verify|approve|review|acknowledge|check|sign|choose|pick|select|decide|reply` +
			`|respond|vote|answer|advise|authori[sz]e)`
		enYes = `(?:confirmation|approval|permission|decision|reply|response|go ahead|green light|sign off` +
			`|consent|feedback|thumbs up|answer|choice|yes)`
	)
	return regexp.MustCompile(strings.Join([]string{
		// 请确认, 等你审批, 若无异议, 确认后执行.
		`(?:请|烦|帮|需|待|等|求|由|跟|与|向|和|给|若|如|要是|想|申请).{0,30}` + zhAct,
		zhAct + `(?:[之以]?后|的话|一下|与否|我[就再才]|则)`,
		// 是否, 要不要, A 还是 B.
		`是否|[可能]否|是不是|要不要|能不能|可不可以|行不行|好不好|对不对|同不同意|需不需要|有没有|怎么样` +
			`|如何|还是[^谢非很挺会要想得有没不0-9]`,
		// 等你点头, 你看, 有什么意见, 请选择.
		`待[批审签定核]|许可|点头|准[话信]|[回给]个话|拿主意|听你的|选一个|(?:[扣打回按]|回复)1|喊停|举手|告诉我|知悉|二选一|反馈|反对|不$`,
		`^等(?:你|您|大家|各位|小)|[等待](?:待)?[你您]|意见|异议|请[选示求批过]|说一声|一句话|你说[可行了]` +
			`|(?:[你您]|大家|各位)[看觉认意]`,
		// 我打算, 建议, 让我来, 周四发布吧.
		`我们?(?:先|就|想|觉得|认为|打算|准备|建议|提议|申请|倾向|可以|来)|让我来|建议|提议|[^酒了]吧$`,
		// Please confirm, just to verify, confirming that, waiting for your approval.
		`\b(?:please|pls|plz|kindly) (?:\w+ ){0,3}?` + enAct + `\b`,
		`\b(?:need|want|like|wait|ask|request|remind|just|double|to|can|could|would|will|must|ill|me|and|ok` +
			`|okay|so|you|lets) (?:\w+ ){0,3}?` + enAct + `\b`,
		`^(?:\w+ ){0,2}(?:` + enAct + `|affirm|ensure|(?:re)?confirming|verifying|checking|requesting` +
			`|awaiting|proposing|pending)\b`,
		`\b(?:a?wait(?:ing)?|hold(?:ing)?|pending|subject to) (?:\w+ ){0,4}?your?\b`,
		`\b(?:a?wait(?:s|ing)?|hold(?:ing)?|pending|subject to|need|want|get|have|give|send|require` +
			`|request) (?:\w+ ){0,4}?` + enYes + `\b`,
		// Shall I, let me know, if you agree, unless you object, I could.
		`^(?:(?:what|when|where|how|which|why|who|so|and|ok|okay|well|then|but|great) ){0,2}(?:shall|should` +
			`|may|can|could|would|do|does|did|is|are|am|will|have) (?:i|we|you|it|that|this|these|the|they` +
			`|there)\b`,
		`let (?:me|us) know|tell (?:me|us)|say (?:so|the word|yes|no|stop)|your (?:call|approval|decision` +
			`|confirmation|turn|choice|thoughts|opinion)`,
		`if (?:you|that|this|it|all|everyone|nobody|no one|anyone|anybody) (?:\w+ ){0,2}?(?:agree|approve|prefer` +
			`|like|want|works?|ok|okay|fine|suits?|objects?|confirm)`,
		`unless|objections?|yes or no|or not|\by n\b|thoughts$|opinions?$|would (?:that|it)|works for you` +
			`|ok(?:ay)? with you|is that (?:ok|okay|right|correct|fine)`,
		`\b(?:i|we) (?:propose|suggest|recommend|think|can|could [^n]|would like|intend to|plan to|want)|\bid (?:like` +
			`|love|suggest|propose)|\b(?:im|were|i am|we are) (?:going|about|ready|planning) to` +
			`|let me (?:see|check|double|recap|repeat|make)|confirmation of`,
		`\b(?:until|till|once|when|before|unless|after|on) (?:you|your)\b|\bon you$|\bwhen i (?:may|can)\b` +
			`|\b(?:rsvp|needed|required|proposal|ack|invited)\b|option \w+ or\b|^ok(?:ay)? to\b` +
			`|^(?:ready|good to go)$|\bsay (?:yes|no)|\bneeds\b|\blook(?:ing)? for\b|\bis open$`,
		`ready to|go ahead$|to (?:be|make) sure|\byou(?:d|ll)? (?:\w+ )?(?:want|wish|like|need|prefer|leave)\b`,
	}, "|"))
})

// wanted are things that one asks for by saying that they are appreciated.
const wanted = `(?:a|any|some|prompt|quick|reply|replies|response|answer|feedback|inputs?|review|thoughts?` +
	`|opinions?|attention|guidance|advice|suggestions?|on this)`

// task matches a clause of this agent that tells someone to do something.
var task = regexp.MustCompile(`把|一下|看看|看下|你去|^给|^订|试|排查|修|盯|处理|解决|组织|核对|迁移|跟进|检查|部署|给结论|帮` +
	`|^(?:(?:now|then|next|and|so|ok|also|please) )*(?:fix|deploy|run|check|book|migrate|negotiate|train|tell|build` +
	`|compile|test|write|send|make|find|get|update|upgrade|install|restart|review|investigate|look|prepare|clean` +
	`|organi[sz]e|create|add|remove|delete|merge|release|ship|start|stop|close|open|call|ask|schedule|set|move` +
	`|rename|rotate|verify|monitor|watch|finish|complete|handle|do|try|translate|summari[sz]e|draft|order|buy|copy` +
	`|download|upload|report|resolve|solve|roll|take|keep|have|let|go|help|read|search|compare|measure|count|sync` +
	`|back)\b`)

var (
	// politeTask matches polite tasks, requests and acceptances: 辛苦确认一下, "your review is appreciated", 很高兴参加.
	politeTask = regexp.MustCompile(`(?:谢|辛苦|麻烦|有劳).*一[下遍次]` +
		`|(?:辛苦|麻烦|有劳|劳[您你](?:费心|大驾))(?:你们?|您们?|大家|各位|诸位|老师|[小伙]*伙伴们?|们)*` +
		`(?:跟进|把关|组织|协调|沟通|讨论|分析|讲解|梳理|归纳|解答|回复|回答|解释|说明|指导|反馈|提醒|补充|确认|通知` +
		`|更新|整理|总结|同步|汇总|汇报|归档|翻译|排查|修复|校对|监督|督促|查询|推荐|介绍|分享|处理|准备|安排|检查` +
		`|设计|改|写|画|做|办|投入|参与|支持|配合|响应|协助|点个?赞|关注)$` +
		`|(?:期待|希望|盼望|欢迎|[请望]多*)(?:你|您|大家|各位|你们)*的?(?:能够?)?(?:回复|答复|反馈|分享|参与|加入|参加` +
		`|意见|支持|提意见|指正|回应|建议)$` +
		`|(?:高兴|荣幸|开心|乐意|愿意|有幸|期待)能?够?(?:加入|参加|参与|出席)(?:团队|活动|会议|项目|讨论)?$` +
		`|\bin advance\b|\bhear (?:back|from)\b|\btake care of (?:it|this|that|everything|things)\b` +
		`|\b(?:id|i would|we would|wed|would) (?:\w+ )?(?:appreciate|be (?:\w+ )?(?:grateful|thankful))\b` +
		`|\b(?:appreciate|grateful for|thankful for)\b.*\b` + wanted + `\b|\b` + wanted + `\b.*\bappreciated$` +
		`|\bfor .*\b(?:tomorrow|by)\b|\byour (?:help|assistance) (?:is|would be) appreciated$` +
		`|\bbe so kind\b|\bhope to (?:get|have|receive)\b|\bid be (?:honou?red|delighted|glad|happy)\b`)
	// statement matches news and requests that look like wishes and farewells: "we have a great event",
	// "that's all I need to deploy", "easy to break".
	statement = regexp.MustCompile(`\b(?:i|we|they|everyone) have an? ` +
		`|\byou have an? .*(?:appointment|reservation|rental|flight|visit|event)$` +
		`|\b(?:all|everything|thing|what) (?:that )?(?:i|we) (?:need|want)(?:ed)? (?:is|are|was)\b` +
		`|\b(?:easy|easier|simple|simpler|painless) to\b|\bbe off (?:today|tomorrow|this|next)\b` +
		`|\b(?:go|run|off) (?:it|this|that|over|on|in|at|to|by|with)\b`)
	// gladTo matches an acceptance or offer, "happy to join", unless its verb is one of courtesyTo.
	gladTo = regexp.MustCompile(`\b(?:happy|glad|delighted|pleased|honou?red|thrilled|excited|love|ready|willing)` +
		` to (\w+(?: (?:of|here|with))?)`)
	courtesyTo = regexp.MustCompile(`^(?:help|assist|hear|see|know|learn|meet|have|oblige|say|be (?:of|here)` +
		`|work with)\b`)
	zhQuestion = regexp.MustCompile(`(?:对|错|是|明白|懂|清楚|了解|知道|收到|没问题|没事|可以|同意|记得|记住` +
		`|记下|妥|没关系|没意见|ok|okay)了?(?:的|哈)?吧$`)

	assent = regexp.MustCompile(`好|可以|行|是|对|同意|没问题|没错|不用|不需要|不必|没有|[嗯恩]|乐意|收到` +
		`|确认|\b(?:ok|okay|yes|yep|yeah|yup|no|nope|nah|sure|agreed|right|correct|confirmed|definitely` +
		`|absolutely|of course|certainly|please|received|all good|id (?:appreciate|love|like)|not at all` +
		`|no problem|fine|true|what i (?:want|need)(?:ed)?|that(?:'?ll| will| should| would) do` +
		`|that(?:'?s| is) (?:about )?it|that does|that (?:\w+ )?covers?` +
		`|(?:don'?t|do not|won'?t|will not|no longer|wouldn'?t|shouldn'?t) (?:\w+ ){0,3}(?:need|requir)|nothing else` +
		`|no (?:more|further|other)|(?:have|need|got) to (?:go|run|be)|must (?:go|run|be)|gotta` +
		`|i'?ll (?:get|be)|i will (?:get|be)` +
		`|made (?:it|this|that|things|everything))\b|[住玩用聊吃谈过]得|结束|到此` +
		`|[👍✅🆗👌👎❌🙆🙅]|\[(?:ok|赞)\]`)
	// agreement matches a decision on an earlier message, while an OK may only acknowledge it.
	agreement = regexp.MustCompile(`同意|赞成|赞同|认同|支持你|可以|没意见|没异议|^行[的吧啊]?$|一言为定|说定|就这么[定办]` +
		`|\b(?:i|we|fully|totally|completely) (?:\w+ )?agree\b|\bagreed\b|\bworks for (?:me|us)\b|\bthat works\b` +
		`|\bfine (?:by|with) (?:me|us)\b|\bapproved\b|\bi (?:second|concur)|\b(?:yes|yeah|yep|correct)\b` +
		`|\bthat(?:'?s| is) (?:right|fine)\b|\bsounds \w+` +
		`|\b(?:exactly|absolutely|definitely|same here|likewise|ditto|fair enough|deal)\b` +
		`|\b(?:don'?t|do not|won'?t|will not|no longer) (?:\w+ ){0,3}(?:need|requir)` +
		`|\+1|没问题|这么想|附议|^(?:是的|对的?|没错)`)
	goAhead = regexp.MustCompile(`^\W*(?:(?:yes|yea|yeah|yep|yup|sure|right|correct|ok|okay|perfect|fantastic` +
		`|great|alright|that(?:'?s| is| would| will|'?ll| sounds)|this is|sounds|you got it|got it|please` +
		`|exactly|of course)\b` +
		`|好|是|对|可以|行|[嗯恩]|没错|同意|没问题)`)
	delivery = regexp.MustCompile(`\benjoy\b|\bfun\b|\btime (?:listening|watching|with|at)\b|\blike it\b`)
	goodDay  = regexp.MustCompile(`\benjoy (?:your|the) (?:(?:rest|remainder)\b|(?:\w+ )?(?:day|evening|night` +
		`|weekend|afternoon|morning|week|holidays?)\b)`)
	// declined matches the beginning of an answer to an offer of help.
	declined = regexp.MustCompile(`^(?:(?:no|nope|nah|none|nothing|not)(?: (?:really|at all|right now` +
		`|at the moment|at this time|for now|now|today|else|more|other|i dont|i do not|i think|but` +
		`|more than enough))*\b ?|` +
		`(?:im|i am|were|we are) (?:all )?(?:good|fine|ok|okay|done|set|alright` +
		`|great)(?: to go)?(?: for)?(?: now| today)?$|` +
		`(?:暂时|目前|现在|都|已经)*(?:没有|没|不用|不需要|无需|不必)(?:了|啦|别的|其他的?|什么)*)`)

	// continuing matches the rest of a courtesy after a space: 谢谢 你了.
	continuing = regexp.MustCompile(`^(?:的|[了啦]$|[你您]们?[了啦]?$)`)
	// welcome matches answers to thanks, which are neither a yes nor a no.
	welcome = regexp.MustCompile(`(?:不用?|不必|无需|别|甭)(?:这么|那么|太|跟我)?(?:客气|谢(?:[^谢]|$))` +
		`|\byou(?:'?re| are|r) (?:(?:very|most|so|always|more than) )?welcome\b|\bdon'?t mention it\b`)

	// finalQuestion matches the end of "transfer 500 EUR. Correct".
	finalQuestion = regexp.MustCompile(`^(?:correct|right|ok|okay)$`)
	questionWord  = regexp.MustCompile(`(?:吗|么|谁|哪里?|多少|什么)$|(?:什么|谁|哪|几|多少|怎|何|要不|是不` +
		`|你|您|那|然后|觉得).*呢$`)
	request = regexp.MustCompile(`[?]|吗|呢$|谁|怎么|怎样|如何|为什么|为何|什么|哪|多少|能不能|能否` +
		`|可否|是否|有没有|请|帮|麻烦|需要|求助|想要|给我|告诉|看看|看一下|看下|\b(?:who|what|when|where|why` +
		`|how|which|can|could|would|should|please|help|need|anyone|anybody|someone|is there|are there|does` +
		`|do you)\b`)
)

// faceNames are the bracketed codes of emoji in chats. Other codes, such as
// that of a picture or a file, are content.
const faceNames = `微笑|呲牙|赞|强|玫瑰|爱心|抱拳|ok|鼓掌|加油|庆祝|比心|握手|憨笑|偷笑|送心|感谢|谢谢|可爱` +
	`|害羞|大笑|笑哭|撒花|玫瑰花|拥抱|奋斗|胜利|得意|调皮|smile|thumbsup|thanks|heart|clap|done` +
	`|finger ?heart|applause|party|wave`

// simplified replaces the traditional characters of the phrases above.
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

// fold converts a text to the form of the phrases: simplified, lower case,
// without compatibility forms and invisible characters.
func fold(s string) string {
	return simplified.Replace(strings.ToLower(plain(s)))
}

// endsClause reports whether r is punctuation. Characters that are part of numbers,
// names and formulas do not count: they remain, and a text with them is not a courtesy.
func endsClause(r rune) bool {
	switch r {
	case '@', '%', '&', '§', '\'', '_', '、':
		return false
	case '~', '\n', '\t', '|':
		return true
	}
	return unicode.IsPunct(r)
}

// isDecoration reports whether r is an emoji or an ornament.
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
