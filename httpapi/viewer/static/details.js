// Everything that is known of one message: a sentence for each bot and what to do, then the raw
// fields, folded.

import { h, show, icon } from './h.js'
import { t, advise } from './i18n.js'
import { exact, span } from './format.js'
import { line, plain, rich, clean, cut } from './text.js'
import { avatar, nameTag, nameText } from './person.js'
import { isBot, isMail, isPerson, nameOf } from './conversation.js'
import { wordOf, latency } from './verdict.js'
import { alike, sentence, signs, stateFor, unheard } from './chips.js'
import { copyButton } from './copy.js'
import { hash } from './route.js'

let unfolded = false // the raw fields, of whatever message

// details shows entry in element. act has limits, close(), go(id), show(id) and thread(id).
export function details(element, conversation, entry, act) {
  const outcomes = conversation.outcomes(entry.message_id).filter((o) => o.stopped !== 'own_message')
  const view = { conversation, limits: act.limits, bots: act.bots }
  const groups = [...alike(entry, view), ...unheard(entry, view)]
  show(element,
    h('header', null,
      h('button', { type: 'button', class: 'icon-button', onclick: act.close, 'aria-label': t('close'), title: t('close') + ' (Esc)', 'data-testid': 'details-close' }, icon('close')),
      h('h2', null, t('details'))),
    h('div', { class: 'inside' },
      h('div', { class: 'speaker' }, avatar(entry), h('div', null, h('div', { class: 'who' }, nameTag(entry)), h('div', { class: 'soft' }, exact(entry.ts)))),
      h('div', { class: 'excerpt', dir: 'auto' }, entry.recalled ? t('recalled') : line(entry.content ?? '', 240)),
      (isBot(entry) || groups.length > 0) && h('section', null, h('h3', null, t('details.outcomes')), groups.length ? groups.map(([word, list]) => outcomeCard(word, list, entry, conversation, act.limits)) : h('p', { class: 'soft' }, t(conversation.undecided(entry) ? 'details.undecided' : 'details.unrecorded'))),
      h('div', { class: 'buttons' },
        copyButton(t('copy.link'), 'link', () => location.origin + location.pathname + hash(conversation.channel, conversation.chat, entry.message_id)),
        copyButton(t('copy.id'), 'copy', () => entry.told ?? entry.message_id),
        h('button', { type: 'button', 'data-testid': 'show-in-flow', onclick: () => act.show(entry.message_id) }, t('show.in.flow'))),
      h('details', { open: unfolded, 'aria-label': t('details.fields'), 'data-testid': 'raw', ontoggle: (e) => (unfolded = e.target.open) }, h('summary', null, t('details.fields')),
        fields(conversation, entry, act), outcomes.map(rawOutcome))))
}

function fields(conversation, entry, act) {
  const go = (id) => (id && conversation.get(id) ? h('button', { type: 'button', class: 'link mono', onclick: () => act.go(id) }, id) : id)
  const thread = entry.thread_id && h('button', { type: 'button', class: 'link mono', onclick: () => act.thread(entry.thread_id) }, entry.thread_id)
  return raw({
    sender: plain(cut(entry.sender ?? nameOf(entry), 200)), sender_name: entry.sender_name && plain(cut(entry.sender_name, 200)), role: entry.role, depth: entry.depth, kind: entry.kind, act: entry.act, set: entry.set && plain(cut(JSON.stringify(entry.set), 400)),
    message_id: h('span', { class: 'mono' }, entry.told ?? entry.message_id), parent_id: go(entry.parent_id), root_id: go(entry.root_id), thread_id: thread, msg_type: entry.msg_type, ts: entry.ts,
    user_ts: entry.user_ts && h('span', { title: exact(entry.user_ts) }, entry.user_ts),
  })
}

// rawOutcome is an outcome as the API has it.
function rawOutcome({ channel, chat_id, relay_msg_id, decision, ...o }) {
  return raw(Object.fromEntries(Object.entries({ ...o, ...decision }).map(([name, value]) => [name, clean(cut(String(value), 600))])))
}

const raw = (values) => table(Object.entries(values).map(([name, value]) => [h('code', null, name), value]))

// table is a list of named values; those that are missing are left out.
export function table(rows) {
  return h('dl', { class: 'fields' }, rows.filter(([, v]) => v !== undefined && v !== null && v !== false && v !== '').map(([name, value]) => [h('dt', null, name), h('dd', null, value)]))
}

// outcomeCard is what became of a message at some bots, and what to do about it.
function outcomeCard(word, list, entry, conversation, limits) {
  const [o] = list
  const state = stateFor(word, list)
  const silent = state !== 'pass' || list.some(({ agent }) => !conversation.answered(entry, agent))
  const advice = silent && !isMail(conversation) && advise(wordOf(o) ?? (state !== 'pass' ? word.replace('became.', '') : isPerson(entry) ? 'heard' : 'pass'))
  return h('div', { class: 'card outcome', 'data-testid': 'outcome-details', 'data-state': state, 'data-reason': o.stopped || o.decision?.reason },
    h('p', { class: 'says' }, h('i', { class: 'sign', 'aria-hidden': 'true' }, signs[state]), h('b', null, sentence(word, list, limits))),
    advice && h('div', null, h('h3', null, t('advice')), h('p', { class: 'advice', 'data-testid': 'advice' }, rich(advice))),
    list.map((o) => [o.detail && h('p', { class: 'reason' }, plain(cut(o.detail, 600))), times(o, entry, list.length > 1)]))
}

// times says how long a message and its judge took.
function times(o, entry, named) {
  const parts = [
    o.delivered_at && t('took.delivered', { time: span(latency(o, entry)) }),
    o.decision?.tier === 'judge' && o.decision.judge_ms !== undefined && t('took.judge', { time: span(o.decision.judge_ms) }),
    o.acknowledged_at && t('took.acknowledged', { time: span(Math.max(0, o.acknowledged_at - entry.ts)) }),
  ].filter(Boolean)
  return parts.length > 0 && h('p', { class: 'soft' }, named && h('bdi', null, nameText(o.agent)), named && t('colon'), parts.join(t('comma')))
}
