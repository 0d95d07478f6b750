// The row under a message that says what became of it at each bot, in brief.

import { h } from './h.js'
import { t, explain } from './i18n.js'
import { span } from './format.js'
import { plain, cut } from './text.js'
import { hue } from './person.js'
import { stateOf, latency } from './verdict.js'

const LONGEST_TIP = 1000 // characters

const signs = { pass: '✓', stop: '✗', wait: '…', skip: '–' }

// chips is the row: the depth, then one chip for each bot that had a say.
export function chips(entry, outcomes) {
  return [
    entry.depth > 0 && h('span', { class: 'depth', title: t('depth.means', { n: entry.depth }), 'data-depth': entry.depth }, t('depth.n', { n: entry.depth })),
    ...outcomes.filter((o) => o.stopped !== 'own_message').map((o) => chip(entry, o)),
  ]
}

function chip(entry, o) {
  const state = stateOf(o)
  const word = o.stopped || o.decision?.tier
  return h('span', {
    class: 'chip', title: explanation(o), 'data-testid': 'outcome', 'data-state': state, 'data-agent': o.agent,
    'data-tier': o.decision?.tier, 'data-reason': o.stopped || o.decision?.reason, 'data-ack': o.acknowledged_at ? 'true' : null,
  },
  h('b', { class: hue(o.agent) }, plain(cut(o.agent, 40))), ' ', h('i', { class: 'sign' }, o.acknowledged_at ? '✓✓' : signs[state]), ' ',
  [[cut(word ?? '', 40), judgeTime(o)].filter(Boolean).join(' '), state === 'wait' ? t('waits') : taken(o, entry)].filter(Boolean).join(' · '))
}

// judgeTime is how long the judge took, where it was asked.
function judgeTime({ decision }) {
  return decision?.tier === 'judge' && decision.judge_ms !== undefined ? span(decision.judge_ms) : ''
}

function taken(o, entry) {
  const ms = latency(o, entry)
  return ms === undefined ? '' : span(ms)
}

// explanation says the API's words in the viewer's language.
export function explanation(o) {
  const { decision: d } = o
  const state = stateOf(o)
  return [
    d && `${d.tier}: ${explain(d.tier)}`,
    o.stopped && `${o.stopped}: ${explain(o.stopped)}`,
    o.detail,
    d && [d.reason !== o.stopped && d.reason, d.detail].filter(Boolean).join(' — '),
    state === 'wait' && t('waits.means'),
    o.delivered_at && t('delivered.means', { door: o.door ?? '?' }),
    o.acknowledged_at && t('acknowledged.means'),
  ].filter(Boolean).join('\n').slice(0, LONGEST_TIP)
}
