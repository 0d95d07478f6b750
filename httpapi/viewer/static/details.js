// Everything that is known of one message: a sentence for the bots and what to do, then the raw fields, folded.

import { h, icon, iconButton, show } from './h.js'
import { advise, exact, span, t } from './language.js'
import { clean, cut, plain, rich } from './text.js'
import { avatar, isBot, isPerson, nameTag, nameText } from './names.js'
import { signs, wordOf } from './verdict.js'
import { said, textOfSentence } from './message.js'

let unfolded = false // the raw fields, of whatever message

// details shows a message in element.
export function details(element, fact, close) {
  const { entry, outcomes, said: sentences, undecided } = fact
  const ontoggle = (e) => (unfolded = e.target.open)
  const { own_id, version, content, ...fields } = entry
  show(element,
    h('header', iconButton('details-close', close, icon('close'), t('close')), h('h2', t('details'))),
    h('div.inside',
      h('div.speaker', avatar(entry), h('div', h('div.who', nameTag(entry)), h('div.soft', exact(entry.ts)))),
      h('div.excerpt', { dir: 'auto' }, said(entry, 240)),
      (isBot(entry) || sentences.length > 0) && h('section', h('h3', t('details.outcomes')),
        sentences.map((sentence) => card(sentence, fact)),
        !sentences.length && h('p.soft', t(undecided ? 'details.undecided' : 'details.unrecorded'))),
      h('details', { open: unfolded, ontoggle, 'aria-label': t('details.fields'), data: { testid: 'raw' } },
        h('summary', t('details.fields')), raw({ ...fields, message_id: own_id ?? fields.message_id }),
        outcomes.filter((o) => o.stopped !== 'own_message').map(({ channel, chat_id, relay_msg_id, decision, ...o }) =>
          raw({ ...o, ...decision })))))
}

// raw is a table of fields as the API has them.
function raw(values) {
  const text = (value) => cut(typeof value === 'object' ? JSON.stringify(value) : String(value), 600)
  const row = ([name, value]) => [h('code', name), value && h('span.mono', plain(text(value)))]
  return table(Object.entries(values).map(row))
}

// table is a list of named values; those that are missing are left out.
export function table(rows) {
  const there = ([, value]) => value !== undefined && value !== null && value !== false && value !== ''
  return h('dl.fields', rows.filter(there).map(([name, value]) => [h('dt', name), h('dd', value)]))
}

// card is what became of a message at some bots, and what to do about it.
function card(sentence, { entry, answered }) {
  const { list: [o], list, state, word } = sentence
  const silent = state !== 'pass' || list.some(({ agent }) => !answered.has(agent))
  const reason = wordOf(o) ?? (state !== 'pass' ? word.replace('became.', '') : isPerson(entry) ? 'heard' : 'pass')
  const advice = silent && advise(reason)
  return h('div.card.outcome', { data: { testid: 'outcome-details', state, reason: o.stopped || o.decision?.reason } },
    h('p.says', h('i.sign', { 'aria-hidden': 'true' }, signs[state]), h('b', textOfSentence(sentence))),
    advice && h('div', h('h3', t('advice')), h('p.advice', { data: { testid: 'advice' } }, rich(advice))),
    list.map((o) => [o.detail && h('p.reason', plain(cut(o.detail, 600))), times(o, entry, list.length > 1)]))
}

// times says how long a message and its judge took.
function times({ agent, delivered_at, decision = {} }, { ts }, named) {
  const took = (word, ms) => t('took.' + word, { time: span(Math.max(0, ms)) })
  const parts = [
    delivered_at && took('delivered', delivered_at - ts),
    decision.tier === 'judge' && decision.judge_ms !== undefined && took('judge', decision.judge_ms),
  ].filter(Boolean)
  const name = named && [h('bdi', nameText(agent)), t('colon')]
  return parts.length > 0 && h('p.soft', name, parts.join(t('comma')))
}
