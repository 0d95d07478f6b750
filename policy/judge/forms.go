package judge

import (
	"regexp"
	"strings"
	"sync"
)

// form is a family of phrases recognised by a pattern, since a list of them would be long.
type form struct {
	class class
	match *regexp.Regexp
}

const (
	formNow = `(?: (?:for (?:now|today|the (?:moment|time being|day))|right now|now|today|then|here|folks|currently` +
		`|at (?:the|this) (?:moment|time|point)|from (?:me|you|my (?:side|end))|on my (?:side|end))){0,3}`
	formNeed = `(?:need(?:ed|ing)?|want(?:ed|ing)?|requir(?:e|ed|ing)|looking for|after)` +
		`(?: (?:to (?:know|do|ask)|(?:any )?(?:help|assistance) with))?`
	formThat = `(?:thats|that s|that (?:is|was|will be|would be|should be)|that(?:ll|d) be` +
		`|thats (?:gonna|going to) be|this (?:is|was|will be)|its|it is|itll be)`
	formMood = `(?:great|good|nice|wonderful|wonderfull|lovely|fantastic|amazing|awesome|excellent|pleasant|fabulous` +
		`|beautiful|blessed|fine|super|superb|terrific|splendid|delightful|marvell?ous|magnificent|exceptional` +
		`|incredible|happy|productive|relaxing|relaxed|restful|safe|safer|joyful|joyous|peaceful|brilliant|perfect` +
		`|special|outstanding|phenomenal|spectacular|stellar|memorable|positive|cool|chill|cozy|sunny|fun|funny` +
		`|delicious|glorious|stupendous|smooth|sweet|better|best|superior|stimulating|enjoyable|cheerful|merry|warm)`
	formLeisure = `(?:music|songs?|tunes?|films?|movies?|games?|ballgame|match|shows?|concerts?|plays?|performance` +
		`|museum|park|gardens?|event|festival|party|pizza|pasta|food|meal|dinner|lunch|breakfast|brunch|drinks?` +
		`|coffee|stay|visit|tour|trip|travels?|journey|ride|flight|drive|vacation|holidays?|getaway|break|rest` +
		`|reservation|rental|appointment|weather|sun|sunshine|outing|cruise` +
		`|(?:bus|train|car|cab|taxi|boat)(?: (?:ride|trip|journey))?` +
		`|(?:property|apartment|hotel|salon|museum|spa) (?:visit|appointment|stay|tour)` +
		`|(?:rest|remainder) of (?:the|your) (?:day|evening|night|week|weekend|afternoon|morning|trip|stay)` +
		`|day|evening|night|weekend|afternoon|morning|week|time(?: (?:off|away|there|out))?)`
	formUse  = `(?:of (?:\w+ )?(?:help|service|assistance|use)|helpful|useful)`
	formHelp = `(?:help|helped|assist|assisted|serve|be ` + formUse + `|have (?:helped|assisted|been ` + formUse + `))`
	formYou  = `(?: (?:you|u|out|today|again|with (?:this|that|it|everything)|in any way)){0,3}`
	formMany = `(?:so|very|really|truly|most|much|always|simply|super|extremely|quite|way|a lot)`
)

// forms are the families, by the first words of their phrases. A phrase may occur anywhere between words of
// the lexicon.
var forms = sync.OnceValue(func() map[string][]form {
	list := []struct {
		class   class
		first   string // the words that it can begin with
		pattern string
	}{
		// "that's all I need", "this will be everything for now", "the only thing I wanted to know".
		{bye, "but that thats thatll thatd this its it itll", `(?:but )?` + formThat +
			` (?:about |just |exactly |really ){0,2}` +
			`(?:all|it|everything|enough|the only thing|(?:all )?the (?:help|info|information|details|assistance))` +
			`(?: of it)? (?:that )?(?:(?:i|we)(?:ll| will| would|d| was| am)?|im|is|was) ` +
			`(?:be )?(?:currently |really )?` + formNeed + formNow},
		{bye, "but that thats thatll thatd this its it itll", `(?:but )?` + formThat +
			` (?:about |just ){0,2}(?:all|it|everything|enough)` + formNow},
		{bye, "that thatll", `that(?:ll| will| should| would)? (?:covers?|do|does) (?:it|everything|me)` +
			`(?: for (?:me|us))?` + formNow},
		{bye, "i ive", `i(?:ve| have)? ?(?:got|have) (?:everything|all|what)(?: that)? i ` + formNeed + formNow},
		// "I won't be needing any more help", "nothing else I need".
		{bye, "i", `i (?:dont|do not|wont|will not|no longer|wouldnt|shouldnt) (?:think i )?` +
			`(?:be |will )?(?:need(?:ing)?|requir(?:e|ing)) ` +
			`(?:anything|any|you (?:any longer|anymore)|(?:your|the|more|further|other|additional) ` +
			`(?:help|assistance|services?))` +
			`(?: (?:else|more|further|other|additional|help|assistance|longer|anymore|from you|with anything)){0,3}` +
			formNow},
		{bye, "there theres nothing no", `(?:there(?: is|s) )?(?:nothing|no) (?:else|more|further|other) ` +
			`(?:help |assistance )?(?:that )?(?:i|we) (?:currently )?(?:need|require|want)` +
			`(?: (?:help|assistance) with)?` + formNow},
		// "I have to go now", "I'll be going", "I'll talk to you later".
		{bye, "i ive gotta", `(?:i (?:have to|need to|got to|gotta|must|have got to)|ive got to|gotta) ` +
			`(?:be )?(?:go|run|off)(?: now| then)?`},
		{bye, "i ill", `(?:ill|i will) (?:be going|get going|be off|be on my way|say goodbye)(?: now| then)?`},
		{bye, "i ill talk speak see catch", `(?:(?:ill|i will) )?(?:talk|speak|see|catch)(?: to| with)? ` +
			`(?:you|ya|u|again)(?: (?:again|later|soon|next time|another (?:day|time))){1,3}`},
		// "please have a most wonderful day", "do enjoy the music", "a good time at the show".
		{wish, "please do and hope i go just have", `(?:(?:please|do|and|hope you|i hope you|go|just) ){0,3}` +
			`have (?:yourself |yourselves )?(?:a|an|the) (?:(?:absolutely|duper|` + formMany + `) ){0,3}` +
			`(?:` + formMood + ` ){1,3}(?:` + formLeisure + `|one)(?: ahead)?`},
		{wish, "i wish wishing", `(?:i )?wish(?:ing)? (?:you|everyone|you all) (?:to have )?(?:a|an|the) ` +
			`(?:` + formMany + ` ){0,3}(?:` + formMood + ` ){1,3}` + formLeisure},
		{wish, "please do and hope i go just then enjoy", `(?:(?:please|do|and|hope you|i hope you|go|just|then) ){0,3}` +
			`enjoy (?:your|the|this|that) (?:` + formMood + ` ){0,3}` + formLeisure},
		{wish, "have fun", `(?:have )?fun (?:at|with|on) (?:your|the) ` + formLeisure},
		{boon, "at with listening watching", `(?:at|with|listening to|watching) (?:your|the) ` + formLeisure},
		// "you helped me a lot", "you've been of great help", "you made it so much easier".
		{thank, "you youve", `you(?:(?:ve| have)? (?:really |truly |all |so ){0,2}(?:helped|saved)| did help) ` +
			`(?:me|us)(?: out)?` +
			`(?: (?:a lot|a great deal|a ton|so much|immensely|greatly|enormously|very much|big time|today)){0,2}`},
		{thank, "you youve", `you(?:ve| have)? (?:sure |really |just )?made ` +
			`(?:it|this|that|things|everything|my (?:life|day)|(?:this|the) whole (?:thing|process))(?: all)? ` +
			`(?:` + formMany + ` ){0,3}(?:easy|easier|simple|simpler|painless)(?: for (?:me|us))?`},
		{thank, "you youve youre your", `you(?:ve| have|re| are|r)?(?: been)? ` +
			`(?:(?:of|such|a|an|ton of|lot of|great|big|real|huge|tremendous|immense|true|` + formMany + `) ){1,4}` +
			`(?:help|assistance|service|helpful)(?: (?:to|for) (?:me|us))?`},
		{thank, "your", `your (?:help|assistance|support) (?:is|was|has been) (?:` + formMany + ` ){0,3}` +
			`(?:invaluable|great|wonderful|amazing|helpful|informative|valuable|awesome|priceless)`},
		{thank, "you youre your", `you(?:re| are|r) (?:(?:a|an|such|the|my|real|true|total|absolute|little) ){1,4}` +
			`(?:angel|gem|peach|star|treasure|asset|doll|sweetheart|legend|hero|help|best|lifesaver|saint|champ)`},
		// "thanks for letting me help you", "thanks for setting that up".
		{given, "for", `for (?:(?:letting|allowing) (?:me|us) (?:to )?(?:help|assist|serve)(?: you)?` +
			`|(?:using|choosing|trying) our (?:services?|system)|(?:calling|booking)(?: (?:us|with us))?|the same` +
			`|(?:helping|sticking with|working with) (?:me|us)(?: out)?|helping out` +
			`|(?:doing|setting up|arranging|handling|organi[sz]ing|providing|finding) (?:that|this|it|everything)` +
			`(?: for (?:me|us))?|(?:setting|looking) (?:that|this|it) up(?: for (?:me|us))?)` +
			`(?: so (?:quickly|fast|promptly|nicely))?`},
		// "I hope I was able to help", "I enjoy helping you", "glad that I could be of service".
		{kind, "i hope", `(?:i )?hope (?:that )?(?:i|we) (?:was able to|were able to|could|did|have|was|were) ` +
			`(?:` + formHelp + `|` + formUse + `|well|my best)` + formYou},
		{kind, "i always enjoyed enjoy loved", `(?:i )?(?:always )?(?:enjoyed|enjoy|loved) (?:helping|assisting|serving)` +
			formYou},
		{kind, "im i were we so very always really glad happy pleased delighted", `(?:(?:im|i am|we are|were) )?` +
			`(?:(?:so|very|always|really) ){0,2}(?:glad|happy|pleased|delighted)(?: that)? ` +
			`(?:(?:i|we) (?:could|was able to|were able to|got to) ` + formHelp +
			`|to have (?:helped|assisted|served|been ` + formUse + `))` + formYou},
		{joy, "it its always a my our such truly an", `(?:(?:it is|its|it was|it has been|its been) )?(?:always )?` +
			`(?:a|my|our|such a|truly a|an absolute) (?:great |real |true )?(?:pleasure|joy|honou?r|privilege|duty) to ` +
			formHelp + formYou},
	}
	byFirst := map[string][]form{}
	for _, f := range list {
		match := regexp.MustCompile(`^(?:` + f.pattern + `)\b`)
		for first := range strings.FieldsSeq(f.first) {
			byFirst[first] = append(byFirst[first], form{f.class, match})
		}
	}
	return byFirst
})

// formsAt calls take with the class and length of each phrase of a form that begins at byte
// i.
func formsAt(words string, i int, take func(class, int)) {
	s := words[i:]
	first, _, _ := strings.Cut(s[:min(len(s), len("delighted "))], " ")
	for _, f := range forms()[first] {
		n := len(f.match.FindString(s))
		if n > 0 && (f.class != thank || n == len(s) || helpedEnd.MatchString(s[n:])) {
			take(f.class, n)
		}
	}
}

// helpedEnd matches what may follow "you helped us" in a clause: "you helped us win" is news.
var helpedEnd = regexp.MustCompile(`^ (?:and|so|thanks?|thx|bye|appreciate)\b`)
