// Package judge holds the two built-in judges of the stop policy: rules that
// recognise courtesies, and a language model behind an OpenAI-compatible
// endpoint. Both implement [policy.Judge].
//
// # Rules
//
// [Rules] needs no key and no network. It stops a bot's message if it is short and each of its clauses is made
// of phrases of the lists in phrases/, in Chinese, English or both: thanks, acknowledgements, praise, wishes,
// farewells, offers of help. One unknown word lets the message pass, and so does a number, a link, code, or a
// question that is no offer of help. A plain yes, no or agreement is in no list.
//
// A courtesy passes if it may be an answer to this agent: to the message that it replies to, or else to those
// that this agent sent since another sender wrote. An acknowledgement or praise passes after a question or a
// request for a decision (phrases/asks.txt), and praise without thanks, an offer of help or "sounds good" after
// anything that is no courtesy itself.
//
// The rules also stop errors and receipts of bot frameworks ("rate limit reached", 已排队), and a message
// without a text, unless it names this bot: that is a nudge. A person's message without an addressee passes if
// it has a question or a request. Unlike the model, the rules do not consider the agent's role.
//
// Of messages that need an answer they stop none of 1,858 in the tests. Of courtesies they stop 68 % of
// testdata/judge.jsonl and 13 % of the long and flowery ones of testdata/exchanges.jsonl. One that passes costs
// a turn, and the hard limit ends the conversation.
//
// # Language model
//
// [LLM] asks a model for YES or NO and accepts no other answer. Message texts are data
// in its prompt: encoded as JSON between delimiters that are new for each call, without
// control characters, limited in size, with the question after them. A text can still
// mislead the model, so its answer is a hint: package policy tests the hard limit first,
// and no answer lifts it.
//
// A call that fails is an error, and policy decides on that. Equal questions within five
// minutes are one call. At most [MaxCalls] calls run at a time, with at most one retry
// each. A breaker stops calls to an endpoint that failed several times in a row;
// [LLM.State] shows it.
//
// # Privacy
//
// No error or log line contains message text, the key, or the endpoint's
// answer.
package judge

import "feishu-relay/policy"

var (
	_ policy.Judge = Rules{}
	_ policy.Judge = (*LLM)(nil)
)
