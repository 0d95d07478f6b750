package send

import "feishu-relay/feishu"

// What a sender counts.
const (
	countedSent        feishu.Counted = "sent"         // a piece was accepted
	countedSendFailed  feishu.Counted = "send_failed"  // a piece was not sent
	countedRateLimited feishu.Counted = "rate_limited" // Feishu asked to wait
	countedRetried     feishu.Counted = "retried"      // a piece was tried again after an error
	countedReplyGone   feishu.Counted = "reply_gone"   // the message to reply to is gone: sent to the chat instead
)

// Counted is all that count gets.
var Counted = []feishu.Counted{
	countedSent, countedSendFailed, countedRateLimited, countedRetried, countedReplyGone,
}
