// Package judge holds the two built-in judges of the stop policy: rules that
// know courtesies, and a language model behind an OpenAI-compatible endpoint.
// Both implement [policy.Judge].
//
// # Rules
//
// [Rules] needs no key and no network. It refuses what consists of courtesies
// only, in Chinese and English, and what is empty; everything else passes: a message
// that holds a question, a task, a fact, a number or code, and one that they do not understand.
//
// They work without a list of phrases. A message is split into clauses, and a clause is taken
// apart into words of a closed lexicon, each of a class: assent, thanks, praise,
// wishes, what one gives thanks for, what is done together. A clause is a courtesy if nothing
// is left over, it has a word that is polite by itself, and every other word
// has in the same clause what its class depends on. So "feedback" is polite after
// "thanks" and content after "ok", and "it worked" is news unless one is glad that
// it did.
//
// How well that carries over was measured on messages written before the lexicon, by
// its author: of the last 60 courtesies, not looked at until then, it refused 51
// (85 %), and none of 60 messages with content. Others speak otherwise than one author:
// expect less. What the rules miss passes, and the hard limit ends it.
//
// # Language model
//
// [LLM] asks a model for YES or NO and takes nothing else for an answer. What
// bots wrote is data in its prompt: encoded as JSON between delimiters that are
// new for each call, without control characters, cut to a size, with the
// question after it. A model can still be talked round, so its answer is a hint: package
// policy tests the hard limit first, and no answer lifts it.
//
// A call that fails is an error, and policy decides what that means. Around
// the call stand a cache of answers, one call for equal questions, at most
// [MaxCalls] at a time, at most one retry, and a breaker that stops asking an
// endpoint that failed several times in a row ([LLM.State] shows it).
//
// # Privacy
//
// Neither message text nor the key is in an error or a log line, and neither is
// what the endpoint answered.
package judge

import "feishu-relay/policy"

var (
	_ policy.Judge = Rules{}
	_ policy.Judge = (*LLM)(nil)
)
