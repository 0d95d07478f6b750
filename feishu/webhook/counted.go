package webhook

import (
	"slices"

	"feishu-relay/feishu"
	"feishu-relay/feishu/conn"
)

// What a webhook counts, beside what package conn counts.
const (
	countedPassed  feishu.Counted = "passed"  // an event went to the bot, which answered
	countedKept    feishu.Counted = "kept"    // an event did not go to the bot, and was acknowledged to Feishu
	countedRefused feishu.Counted = "refused" // an event did not go to the bot, and Feishu will post it again
	// an event did not reach the bot, which did not answer, and Feishu will post it again
	countedBotAway   feishu.Counted = "bot_away"
	countedChallenge feishu.Counted = "challenge" // Feishu asked whether we are the right ones
	countedForged    feishu.Counted = "forged"    // a post was not proven to be Feishu's
	// a post was larger than 1 MiB, or than 4 KiB without its signature
	countedTooLarge feishu.Counted = "too_large"
	// the body of a post did not come within 5 s, or had to make room for others
	countedTooSlow feishu.Counted = "too_slow"
	// a post was refused, since the bot works on 256, or bodies fill their memory
	countedTooMany feishu.Counted = "too_many"
	// an event came again while the bot works on it: refused, Feishu will post it again
	countedInProgress feishu.Counted = "in_progress"
	// an event came again that the bot has answered with 200: answered, and dropped
	countedRepeated feishu.Counted = "repeated"
	// what was to be done after an event was not done when Feishu got its answer
	countedAfterLate feishu.Counted = "after_late"
)

// Counted is all that Options.Counter gets.
var Counted = slices.Concat(conn.Counted, []feishu.Counted{
	countedPassed, countedKept, countedRefused, countedBotAway, countedChallenge, countedForged,
	countedTooLarge, countedTooSlow, countedTooMany, countedInProgress, countedRepeated,
	countedAfterLate,
})
