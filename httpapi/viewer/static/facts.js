// What is said about each message: which bots have it, which answered, where a conversation was stopped. All of
// it follows from the messages, their outcomes, and the bots of the group as they are now.

import { isBot, isNotice, isPerson } from './names.js'
import { endedBy, overall, stateOf, why, wordOf } from './verdict.js'
import { second } from './language.js'

const WAITS = new Set(['became.away', 'became.absent', 'became.left'])
const TIMED = new Set(['became.quiet', 'became.silent', 'became.left'])

// blank is what is known of one message by itself.
export const blank = (entry, outcomes) => ({
  entry, outcomes,
  state: isBot(entry) ? overall(outcomes) : undefined,
  end: isBot(entry) ? endedBy(outcomes) : undefined, // of a conversation, at the last message of those in a row
  ends: 1, // messages in a row that ended so
  said: [], // sentences { word, list, state, why, time }; list: outcomes, or bots without one
  answered: new Set(), // bots that have answered it
  undecided: false, // no bot has decided on it yet
})

// factsOf returns the facts of all messages, in order. became(id) lists what became of a message by agent; after
// the time recordedFrom none is missing. bots are those of the group, limits its limits. It looks from the newest
// message back: a bot's silence follows from later messages.
export function factsOf(entries, became, recordedFrom, { bots = [], limits } = {}) {
  const all = entries.map((entry) => blank(entry, became(entry.message_id)))
  const spoke = new Map() // agent → index of its next message
  const person = new Map() // topic → index of the next message of a person
  const replies = new Map() // message id → agents that replied to it
  let newest // the newest message
  let after // the facts of the next message, which hold those of the messages in a row that ended alike
  let decided = false // on a later message
  for (const [i, f] of [...all.entries()].reverse()) {
    const { entry, end, outcomes } = f
    if (isNotice(entry)) continue
    newest ??= entry
    if (end && after?.end?.stopped === end.stopped) {
      after.ends++
      f.end = undefined
    } else after = f
    const until = isPerson(entry) ? person.get(entry.thread_id) ?? Infinity : Infinity
    // What a bot says after the next message of a person answers that one, unless it is a reply to this one.
    const answers = ({ agent }) => spoke.get(agent) < until || replies.get(entry.message_id)?.has(agent)
    const last = isPerson(entry) && until === Infinity // nobody has gone on in its topic
    f.answered = new Set(outcomes.filter(answers).map((o) => o.agent))
    f.undecided = entry.ts > recordedFrom && !decided
    f.said = [...heard(f, bots, limits, entry === newest, last), ...(entry === newest || last ? unheard(f, bots) : [])]
    if (isPerson(entry)) person.set(entry.thread_id, i)
    if (!isBot(entry)) continue
    spoke.set(entry.sender, i)
    replies.set(entry.parent_id, (replies.get(entry.parent_id) ?? new Set()).add(entry.sender))
    decided ||= outcomes.length > 0
  }
  return all
}

// heard groups the outcomes of a message by what is to be said of them.
function heard({ entry, outcomes, answered }, bots, limits, newest, last) {
  const groups = new Map()
  for (const o of outcomes) {
    if (o.stopped === 'own_message') continue
    const silent = isPerson(entry) ? !answered.has(o.agent) : newest
    const silence = silent && (!isPerson(entry) || last ? 'quiet' : 'silent')
    const word = wordFor(o, silence, bots.find((b) => b.agent === o.agent))
    const time = TIMED.has(word) ? second(o.delivered_at) : ''
    const key = [word, why(o, limits), time].join(' ')
    if (groups.has(key)) groups.get(key).list.push(o)
    else groups.set(key, { word, list: [o], state: WAITS.has(word) ? 'wait' : stateOf(o), why: why(o, limits), time })
  }
  return [...groups.values()]
}

// wordFor is the sentence for an outcome; silence: the bot gave no answer; bot: as the group has it now.
function wordFor(o, silence, bot) {
  const state = stateOf(o)
  const gone = bot && (!bot.online || bot.away_since > 0)
  if (state === 'stop' || (state === 'skip' && wordOf(o))) return 'became.stop'
  if (state === 'wait' && gone) return 'became.held'
  if (state !== 'pass') return 'became.' + state
  if (silence === 'quiet' && gone && !(bot.away_since < o.delivered_at)) return 'became.left'
  return silence ? 'became.' + silence : 'became.pass'
}

// unheard lists the bots of which nothing is known about the newest message, or a person's last.
function unheard({ entry, outcomes }, bots) {
  const rest = bots.filter(({ agent }) => agent !== entry.sender && !outcomes.some((o) => o.agent === agent))
  const here = outcomes.length > 0 && isPerson(entry)
  const words = {
    'became.away': rest.filter((b) => !b.online),
    'became.absent': rest.filter((b) => b.online && b.away_since),
    'became.unheard': rest.filter((b) => here && b.online && !b.away_since),
  }
  return Object.entries(words).filter(([, list]) => list.length)
    .map(([word, list]) => ({ word, list, lacks: true, state: WAITS.has(word) ? 'wait' : 'skip' }))
}
