package gateway

import "feishu-relay/feishu"

// What a gateway counts, beside what packages longconn and webhook count.
const (
	countedSent feishu.Counted = "sent" // a message went to the host
	// a message did not go to the host, which failed or panicked; it is tried again
	countedSentError feishu.Counted = "sent_error"
	countedDraft     feishu.Counted = "draft" // a message waits until it is final
	// a draft went to the host, also as an edit of what went there before
	countedDraftPublished feishu.Counted = "draft_published"
	// a draft timed out: it got no text, or the host did not take it
	countedDraftExpired  feishu.Counted = "draft_expired"
	countedDraftPrivate  feishu.Counted = "draft_private"  // a draft turned out to be in a private chat
	countedDraftRecalled feishu.Counted = "draft_recalled" // a draft was recalled
	// a draft was dropped, since too many cannot be published, or too large ones
	countedDraftLost    feishu.Counted = "draft_lost"
	countedDraftUnsaved feishu.Counted = "draft_unsaved" // a draft is in memory only: the disk refused it
	countedDraftBroken  feishu.Counted = "draft_broken"  // a draft's file cannot be read
	// another bot's message came from Feishu and was stored
	countedNative feishu.Counted = "native"
	// another bot's message was not stored; Feishu is to deliver it again
	countedNativeRefused feishu.Counted = "native_refused"
	countedHeardError    feishu.Counted = "heard_error" // a person's message could not be recorded
	countedWithheld      feishu.Counted = "withheld"    // a person's message is not passed to the bot now
	countedChatAsked     feishu.Counted = "chat_asked"  // Feishu was asked what kind a chat is
	countedNamesAsked    feishu.Counted = "names_asked" // Feishu was asked who a chat's bots and people are
	// a message was sent with real mentions in the place of plain names
	countedMentionWritten feishu.Counted = "mention_written"
	// Feishu refused a message with written mentions: it was sent as the bot wrote it
	countedMentionRefused feishu.Counted = "mention_refused"
	countedLookupAnswered feishu.Counted = "lookup_answered" // a look-up got an answer of ours
	// a call for a chat with another agent was answered here
	countedPeerAnswered feishu.Counted = "peer_answered"
	countedForeignApp   feishu.Counted = "foreign_app"  // a call of another app passed unread
	countedForeignUser  feishu.Counted = "foreign_user" // a call of a user passed unread
	// a request named a host that is not the gateway's own
	countedForeignHost   feishu.Counted = "foreign_host"
	countedCrossOrigin   feishu.Counted = "cross_origin"   // a request was made by somebody else's web page
	countedUntappedLarge feishu.Counted = "untapped_large" // a watched call was too large to read
	// the answer to a watched call was packed in an unknown way
	countedUntappedEncoding feishu.Counted = "untapped_encoding"
	// a watched call was not read: too much is held of other calls, or too many are being recorded
	countedUntappedBusy   feishu.Counted = "untapped_busy"
	countedUnreadable     feishu.Counted = "unreadable"      // the answer to a send has no message in it
	countedCardUnreadable feishu.Counted = "card_unreadable" // a change of a card makes no sense
	countedAnswerCut      feishu.Counted = "answer_cut"      // an answer of Feishu ended early
	countedTapSlow        feishu.Counted = "tap_slow"        // the bot got its answer before the host was done
	countedAborted        feishu.Counted = "aborted"         // the bot hung up
	countedUpstreamError  feishu.Counted = "upstream_error"  // Feishu cannot be reached
	countedPanic          feishu.Counted = "panic"           // a panic of ours was caught
)

// Counted is all that Options.Counter gets.
var Counted = []feishu.Counted{
	countedSent, countedSentError, countedDraft, countedDraftPublished, countedDraftExpired,
	countedDraftPrivate, countedDraftRecalled, countedDraftLost, countedDraftUnsaved, countedDraftBroken,
	countedNative, countedNativeRefused, countedHeardError, countedWithheld, countedChatAsked,
	countedNamesAsked, countedMentionWritten, countedMentionRefused, countedLookupAnswered,
	countedPeerAnswered, countedForeignApp, countedForeignUser, countedForeignHost, countedCrossOrigin,
	countedUntappedLarge, countedUntappedEncoding, countedUntappedBusy, countedUnreadable,
	countedCardUnreadable, countedAnswerCut, countedTapSlow, countedAborted, countedUpstreamError,
	countedPanic,
}
