// What an outcome means: the words of the API, put into four states.

const NO_STOP = new Set(['own_message', 'duplicate', 'not_a_member', 'not_mentioned', 'not_for_me', 'muted']) // says nothing about the talk
const UNDECIDED = new Set(['bad_signature', 'malformed', 'expired', 'recalled', 'undeliverable']) // the bot could not be given it, whatever the limits
export const ENDS = new Set(['max_depth', 'judge_no', 'judge_error', 'budget', 'paused', 'stopped_by_person'])

// stateOf is 'pass' (the bot was given it), 'stop', 'wait' (it will be), or
// 'skip' (it was not for that bot).
export function stateOf(outcome) {
  if (outcome.stopped) return NO_STOP.has(outcome.stopped) ? 'skip' : 'stop'
  if (outcome.delivered_at) return 'pass'
  if (!outcome.decision) return 'skip' // nothing is known
  return outcome.decision.allow === false ? 'stop' : 'wait'
}

// wordOf is the API's word for why a bot was not given a message; undefined if it was, or will be.
export function wordOf(outcome) {
  if (outcome.stopped) return outcome.stopped
  return !outcome.delivered_at && outcome.decision?.allow === false ? outcome.decision.reason : undefined
}

// limitOf is the limit that a message reached: as the decision says it, since the group's own
// may have changed.
export function limitOf({ decision }, limits) {
  return decision?.detail?.match(/limit (\d+)/)?.[1] ?? limits?.max_depth ?? decision?.depth
}

// latency is how long a bot waited for a message, in ms.
export function latency(outcome, entry) {
  return outcome.delivered_at ? Math.max(0, outcome.delivered_at - entry.ts) : undefined
}

// endedBy is the outcome that ended a conversation with a message: it was stopped at every
// bot that decided on it. It is undefined if the conversation may go on.
export function endedBy(outcomes) {
  const decided = outcomes.filter((o) => stateOf(o) !== 'skip' && !UNDECIDED.has(o.stopped) && (o.stopped || o.decision))
  if (!decided.length || !decided.every((o) => ENDS.has(o.stopped))) return undefined
  return decided.find((o) => o.stopped === 'max_depth') ?? decided[0]
}

// overall is the state of a message among all bots: 'stop' if the talk ended with
// it, 'wait' if a bot still waits for it, 'pass' if one has it, 'skip' if it was
// for none, and undefined if nothing is known.
export function overall(outcomes) {
  if (endedBy(outcomes)) return 'stop'
  const states = outcomes.map(stateOf)
  return ['wait', 'pass', 'stop', 'skip'].find((state) => states.includes(state))
}
