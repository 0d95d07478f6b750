// What an outcome means: the words of the API, put into four states.

import { t } from './language.js'
import { cut } from './text.js'

// Reasons for which a bot could not be given a message, whatever the limits; and those that end a conversation.
// The others say nothing about it.
const UNDECIDED = new Set(['bad_signature', 'malformed', 'expired', 'recalled', 'undeliverable'])
const ENDS = new Set(['max_depth', 'judge_no', 'judge_error', 'budget', 'paused', 'stopped_by_person'])

export const signs = { pass: '✓', stop: '✗', wait: '…', skip: '–' }

// stateOf is 'pass' (the bot was given it), 'stop', 'wait' (it will be), or 'skip' (it was not for that bot,
// or nothing is known).
export function stateOf(outcome) {
  if (outcome.stopped) return ENDS.has(outcome.stopped) || UNDECIDED.has(outcome.stopped) ? 'stop' : 'skip'
  if (outcome.delivered_at) return 'pass'
  if (!outcome.decision) return 'skip'
  return outcome.decision.allow === false ? 'stop' : 'wait'
}

// wordOf is the API's word for why a bot was not given a message; undefined if it was, or will be.
export function wordOf({ stopped, delivered_at, decision }) {
  return stopped || (!delivered_at && decision?.allow === false ? decision.reason : undefined)
}

// isEnd reports whether an outcome ends the conversation at that bot.
export const isEnd = (outcome) => ENDS.has(wordOf(outcome))

// why is the reason of a stop in a few words; '' if it was not stopped. The limit is the one that the
// decision names: the group's own may have changed.
export function why(outcome, limits) {
  const word = wordOf(outcome)
  if (!word) return ''
  const { decision } = outcome
  const n = decision?.detail?.match(/limit (\d+)/)?.[1] ?? limits?.max_depth ?? decision?.depth ?? '?'
  const text = t('why.' + word, { n })
  return text === 'why.' + word ? cut(word, 80) : text
}

// endedBy is the outcome that ended a conversation with a message: it was stopped at every bot that decided
// on it. It is undefined if the conversation may go on.
export function endedBy(outcomes) {
  const decided = outcomes.filter((o) => stateOf(o) !== 'skip' && !UNDECIDED.has(o.stopped))
  if (!decided.length || !decided.every((o) => ENDS.has(o.stopped))) return undefined
  return decided.find((o) => o.stopped === 'max_depth') ?? decided[0]
}

// overall is the state of a message among all bots: 'stop' if the conversation ended with it, 'wait' if a
// bot still waits for it, 'pass' if one has it, 'skip' if it was for none; undefined if nothing is known.
export function overall(outcomes) {
  const states = outcomes.map(stateOf)
  return endedBy(outcomes) ? 'stop' : ['wait', 'pass', 'stop', 'skip'].find((state) => states.includes(state))
}
