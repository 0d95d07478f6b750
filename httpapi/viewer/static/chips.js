// The row under a message that says in sentences what became of it at the bots.

import { h } from './h.js'
import { t, filled, explain } from './i18n.js'
import { listed } from './format.js'
import { clean, cut, plain } from './text.js'
import { botName } from './person.js'
import { stateOf, wordOf, limitOf } from './verdict.js'

const signs = { pass: '✓', stop: '✗', wait: '…', skip: '–' }
const LONGEST_TIP = 400 // characters

// chips is the row: the depth, then a sentence for the bots of which the same is to be said.
export function chips(entry, outcomes, limits) {
  const groups = new Map()
  for (const o of outcomes) {
    if (o.stopped === 'own_message') continue
    const key = sentenceKey(o, limits)
    if (groups.has(key)) groups.get(key).push(o)
    else groups.set(key, [o])
  }
  return [
    entry.depth > 0 && h('span', { class: 'depth', title: t('depth.means', { n: entry.depth }), 'data-depth': entry.depth }, t('depth.n', { n: entry.depth })),
    ...[...groups.values()].map((list) => chip(list, limits)),
  ]
}

const sentenceKey = (o, limits) => [stateOf(o), Boolean(o.acknowledged_at), why(o, limits)].join(' ')

function chip(list, limits) {
  const state = stateOf(list[0])
  const who = listed(list.map((o) => botName(o.agent, {
    'data-testid': 'outcome', 'data-state': state, 'data-agent': o.agent,
    'data-tier': o.decision?.tier, 'data-reason': o.stopped || o.decision?.reason, 'data-ack': o.acknowledged_at ? 'true' : null,
  })))
  return h('span', { class: 'chip', 'data-testid': 'sentence', 'data-state': state, title: clean(cut(explain(wordOf(list[0])), LONGEST_TIP)) || null },
    h('i', { class: 'sign', 'aria-hidden': 'true' }, signs[state]), ' ', h('span', null, sentence(list[0], limits, who)))
}

// sentence says what became of a message at a bot; who is its name, or the names of several
// of which the same holds.
export function sentence(o, limits, who = botName(o.agent)) {
  const state = stateOf(o)
  if (state === 'stop' || (state === 'skip' && wordOf(o))) return filled('became.stop', { who, why: plain(why(o, limits)) })
  return filled('became.' + (o.acknowledged_at ? 'acknowledged' : state), { who })
}

// why is the reason of a stop in a few words; '' if it was not stopped.
export function why(o, limits) {
  const word = wordOf(o)
  if (!word) return ''
  const text = t('why.' + word, { n: limitOf(o, limits) ?? '?' })
  return text === 'why.' + word ? cut(word, 80) : text
}
