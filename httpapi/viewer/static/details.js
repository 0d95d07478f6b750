// Everything that is known of one message.

import { h, show, icon } from './h.js'
import { t, explain } from './i18n.js'
import { clock, exact, span } from './format.js'
import { line, plain, cut } from './text.js'
import { avatar, nameTag, botName } from './person.js'
import { isBot, nameOf } from './conversation.js'
import { stateOf, latency, endedBy } from './verdict.js'
import { why } from './chips.js'
import { copyButton } from './copy.js'
import { hash } from './route.js'

// details shows entry in element. act has close(), go(id), show(id) and thread(id).
export function details(element, conversation, entry, act) {
  const outcomes = conversation.outcomes(entry.message_id).filter((o) => o.stopped !== 'own_message')
  const end = isBot(entry) && endedBy(outcomes)
  show(element,
    h('header', null,
      h('button', { type: 'button', class: 'icon-button', onclick: act.close, 'aria-label': t('close'), title: t('close') + ' (Esc)', 'data-testid': 'details-close' }, icon('close')),
      h('h2', null, t('details'))),
    h('div', { class: 'inside' },
      h('div', { class: 'speaker' }, avatar(entry), h('div', null, h('div', { class: 'who' }, nameTag(entry)), h('div', { class: 'soft' }, exact(entry.ts)))),
      h('div', { class: 'excerpt', dir: 'auto' }, entry.recalled ? t('recalled') : line(entry.content ?? '', 240)),
      h('div', { class: 'buttons' },
        copyButton(t('copy.link'), 'link', () => location.origin + location.pathname + hash(conversation.channel, conversation.chat, entry.message_id)),
        copyButton(t('copy.id'), 'copy', () => entry.told ?? entry.message_id),
        h('button', { type: 'button', 'data-testid': 'show-in-flow', onclick: () => act.show(entry.message_id) }, t('show.in.flow'))),
      end && h('p', { class: 'note stop' }, t('ended', { why: why(end, act.limits) })),
      isBot(entry) && h('section', null, h('h3', null, t('details.outcomes')), outcomes.length ? outcomes.map((o) => outcomeCard(o, entry)) : h('p', { class: 'soft' }, t('details.no.outcomes'))),
      h('section', null, h('h3', null, t('details.fields')), fields(conversation, entry, act))))
}

function fields(conversation, entry, act) {
  const go = (id) => (id && conversation.get(id) ? h('button', { type: 'button', class: 'link mono', onclick: () => act.go(id) }, id) : id)
  const thread = entry.thread_id && h('button', { type: 'button', class: 'link mono', onclick: () => act.thread(entry.thread_id) }, entry.thread_id)
  return table([
    ['sender', plain(cut(nameOf(entry), 200))],
    ['sender id', entry.sender && entry.sender !== nameOf(entry) && h('span', { class: 'mono' }, plain(cut(entry.sender, 200)))],
    ['role', entry.role], ['depth', entry.depth],
    ['kind', entry.kind], ['act', entry.act], ['set', entry.set && h('code', null, plain(cut(JSON.stringify(entry.set), 400)))],
    ['message_id', h('span', { class: 'mono' }, entry.told ?? entry.message_id)],
    ['parent_id', go(entry.parent_id)], ['root_id', go(entry.root_id)], ['thread_id', thread],
    ['msg_type', entry.msg_type], ['ts', h('span', { class: 'mono' }, entry.ts)],
    ['user_ts', entry.user_ts && h('span', { class: 'mono', title: exact(entry.user_ts) }, entry.user_ts)],
  ])
}

// table is a list of named values; those that are missing are left out.
export function table(rows) {
  return h('dl', { class: 'fields' }, rows.filter(([, v]) => v !== undefined && v !== null && v !== false && v !== '').map(([name, value]) => [h('dt', null, name), h('dd', null, value)]))
}

function outcomeCard(o, entry) {
  const state = stateOf(o)
  const d = o.decision
  const ms = latency(o, entry)
  const word = (w) => w && h('span', null, h('code', null, w), explain(w) && h('span', { class: 'soft' }, ' ' + explain(w)))
  return h('div', { class: 'card outcome', 'data-testid': 'outcome-details', 'data-agent': o.agent, 'data-state': state, 'data-tier': d?.tier, 'data-reason': o.stopped || d?.reason },
    h('div', { class: 'title' }, botName(o.agent), h('span', { class: 'state', 'data-state': state }, t('state.' + (o.acknowledged_at ? 'acknowledged' : state)))),
    table([
      [t('field.tier'), word(d?.tier)],
      [t('field.stopped'), word(o.stopped)],
      [t('field.reason'), d && d.reason !== o.stopped && plain(cut(d.reason ?? '', 400))],
      [t('field.detail'), (o.detail || d?.detail) && plain(cut(o.detail || d.detail, 600))],
      [t('field.depth'), d?.depth],
      [t('field.judge'), d?.judge_ms !== undefined && d.tier === 'judge' && span(d.judge_ms)],
      [t('field.delivered'), o.delivered_at && h('time', { title: exact(o.delivered_at) }, `${clock(o.delivered_at)} · ${t('after', { time: span(ms) })}`)],
      [t('field.door'), o.door],
      [t('field.acknowledged'), o.acknowledged_at && h('time', { title: exact(o.acknowledged_at) }, `${clock(o.acknowledged_at)} · ${t('after', { time: span(Math.max(0, o.acknowledged_at - entry.ts)) })}`)],
    ]))
}
