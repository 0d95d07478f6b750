// The row under a message that says in sentences what became of it at the bots.

import { h } from './h.js'
import { t, filled, explain } from './i18n.js'
import { listed, second } from './format.js'
import { isMail, isNotice, isPerson } from './conversation.js'
import { clean, cut, plain } from './text.js'
import { botName } from './person.js'
import { stateOf, wordOf, limitOf } from './verdict.js'

export const signs = { pass: '✓', stop: '✗', wait: '…', skip: '–' }
const LONGEST_TIP = 400 // characters

// chips is the row: the depth, then a sentence for the bots of which the same is to be said. view
// has conversation and limits.
export function chips(entry, view) {
  return [
    entry.depth > 0 && h('span', { class: 'depth', title: t('depth.means', { n: entry.depth }), 'data-depth': entry.depth }, t('depth.n', { n: entry.depth })),
    ...[...alike(entry, view), ...unheard(entry, view)].map(([word, list]) => chip(word, list, view)),
  ]
}

// unheard lists the bots of the group of which nothing is known about a message, where that is the
// newest one or a person's last, or where it should be known: [word, bots].
export function unheard(entry, { conversation, bots = [] }) {
  if (isNotice(entry)) return []
  const lost = bots.filter(({ agent }) => conversation.unrecorded(entry, agent))
  if (lost.length) return [['became.unrecorded', lost]]
  if (entry !== conversation.newest && !conversation.lastOfPerson(entry)) return []
  const known = conversation.outcomes(entry.message_id)
  const rest = bots.filter(({ agent }) => agent !== entry.sender && !known.some((o) => o.agent === agent))
  const away = rest.filter((b) => !b.online)
  const absent = rest.filter((b) => b.online && b.away_since)
  const here = known.length && isPerson(entry) ? rest.filter((b) => b.online && !b.away_since) : []
  return [['became.away', away], ['became.absent', absent], ['became.unheard', here]].filter(([, list]) => list.length)
}

const lacking = new Set(['became.away', 'became.absent', 'became.unheard', 'became.unrecorded']) // sentences about bots, which have no outcome
const waiting = new Set(['became.away', 'became.absent', 'became.left'])
const timed = new Set(['became.quiet', 'became.silent', 'became.left'])

// stateFor is the state of bots, or outcomes, of which a sentence is said.
export const stateFor = (word, [first]) => (waiting.has(word) ? 'wait' : stateOf(first))

// alike groups what became of a message at the bots by what is to be said: [word, outcomes].
export function alike(entry, { conversation, limits, bots = [] }) {
  const groups = new Map()
  for (const o of conversation.outcomes(entry.message_id)) {
    if (o.stopped === 'own_message') continue
    const word = wordFor(o, conversation.silence(entry, o.agent), bots.find((b) => b.agent === o.agent))
    const key = [word, why(o, limits), timed.has(word) ? second(o.delivered_at) : ''].join(' ')
    if (groups.has(key)) groups.get(key)[1].push(o)
    else groups.set(key, [word, [o]])
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
  return silence ? 'became.' + silence : o.acknowledged_at ? 'became.acknowledged' : 'became.pass'
}

function chip(word, list, { limits }) {
  const state = stateFor(word, list)
  const name = (o) => botName(o.agent, lacking.has(word) ? { 'data-testid': 'unheard', 'data-agent': o.agent } : {
    'data-testid': 'outcome', 'data-state': state, 'data-agent': o.agent,
    'data-tier': o.decision?.tier, 'data-reason': o.stopped || o.decision?.reason, 'data-ack': o.acknowledged_at ? 'true' : null,
  })
  return h('span', { class: 'chip', 'data-testid': 'sentence', 'data-state': state, title: clean(cut(explain(wordOf(list[0])), LONGEST_TIP)) || null },
    h('i', { class: 'sign', 'aria-hidden': 'true' }, signs[state]), ' ', h('span', null, sentence(word, list, limits, name)))
}

// sentence says what became of a message at some bots of which the same holds.
export function sentence(word, list, limits, name = (o) => botName(o.agent)) {
  return filled(word, { who: listed(list.map(name)), why: plain(why(list[0], limits)), time: second(list[0].delivered_at) })
}

// why is the reason of a stop in a few words; '' if it was not stopped.
export function why(o, limits) {
  const word = wordOf(o)
  if (!word) return ''
  const code = isMail(o) && o.detail?.match(/^[A-Z_]+/)?.[0]
  if (code) return t('why.mail', { why: explain(code) || code })
  const text = t('why.' + word, { n: limitOf(o, limits) ?? '?' })
  return text === 'why.' + word ? cut(word, 80) : text
}
