// One message in the flow.

import { h, icon } from './h.js'
import { t } from './i18n.js'
import { clock, exact, day, dayKey, ends, number } from './format.js'
import { body, line, plain, clean, cut } from './text.js'
import { avatar, nameTag } from './person.js'
import { chips, why } from './chips.js'
import { isBot, isNotice, nameOf } from './conversation.js'
import { called } from './names.js'
import { overall } from './verdict.js'

const GROUP_WITHIN = 5 * 60_000 // ms between messages of one sender that stand together

// row makes the element of a message: a slot that may hold a date before the
// message and the end of a talk behind it. view tells { conversation, query,
// selected }.
export function row(entry, view) {
  const article = h('article', {
    class: 'message', role: 'article', tabindex: '-1', 'data-testid': 'message', 'data-message-id': entry.message_id, 'data-role': entry.role,
    'data-agent': isBot(entry) ? entry.sender : null, 'data-thread': entry.thread_id || null, 'aria-label': t('message.by', { name: clean(cut(nameOf(entry), 64)) }),
  },
  isNotice(entry) ? h('span', { class: 'avatar', 'aria-hidden': 'true' }, icon('told')) : avatar(entry),
  h('div', { class: 'who' }, isNotice(entry) ? noticeTag(entry, view.conversation.repeats(entry)) : nameTag(entry),
    h('time', { datetime: isoOf(entry.ts), title: exact(entry.ts) }, clock(entry.ts)),
    entry.edited && h('span', { class: 'soft', 'data-testid': 'edited' }, t('edited')),
    entry.thread_id && h('button', { type: 'button', class: 'thread-mark', tabindex: '-1', 'data-thread-id': entry.thread_id, title: t('thread.only') }, icon('thread'), t('thread'))),
  quote(entry, view),
  textOf(entry, view.query),
  h('div', { class: 'chips' }))
  const slot = h('div', { class: entry.thread_id ? 'slot threaded' : 'slot' }, article)
  paint(slot, entry, view)
  if (view.selected === entry.message_id) choose(article)
  return slot
}

// textOf is what stands in a message.
function textOf(entry, query) {
  if (entry.recalled) return h('div', { class: 'text gone', 'data-testid': 'recalled' }, t('recalled'))
  if (!entry.content && isNotice(entry)) return h('div', { class: 'text' }, t('act.' + entry.act), entry.act === 'set' && ' ' + changes(entry.set ?? {}))
  return body(entry.content ?? '', query)
}

// changes says what a command changed.
function changes(set) {
  const shown = (key, value) => {
    if (key === 'paused') return value ? t('steer.paused') + ends(value) : t('steer.unpaused')
    if (key.startsWith('muted:')) return `${called(key.slice('muted:'.length))} ${value ? t('steer.muted') + ends(value) : t('steer.unmuted')}`
    if (key === 'forgotten') return t('set.forgotten')
    const word = key === 'default_bot' && value ? called(value) : key === 'answer' ? t('mode.' + value) : typeof value === 'boolean' ? t(value ? 'on' : 'off') : value || t('steer.nobody')
    return `${t('set.' + key)} ${key === 'budget' ? value : word}`
  }
  return clean(cut(Object.entries(set).map(([key, value]) => shown(key, value)).join(', '), 400))
}

// said is a line of a message's text.
const said = (entry, length) => (entry.recalled ? t('recalled') : line(entry.content ?? '', length))

// noticeTag is who gave a command, or that the sidecars say something; times: how often in a row.
function noticeTag(entry, times) {
  return [
    entry.kind === 'command' && h('bdi', { class: 'name' }, plain(cut(entry.by === 'api' ? t('by.api') : nameOf(entry), 64))),
    h('span', { class: 'mark', 'data-testid': 'notice-kind', 'data-kind': entry.kind, 'data-act': entry.act }, t('kind.' + (entry.kind === 'command' ? 'command' : entry.act === 'stop' ? 'stop' : 'answer'))),
    times > 1 && h('span', { class: 'mark', title: t('stops.n', { n: number(times) }), 'data-testid': 'notice-times' }, t('times', { n: number(times) })),
  ]
}

// choose marks the message that is selected: Tab reaches it and what is in it.
export function choose(article, chosen = true) {
  if (chosen) article.setAttribute('aria-current', 'true')
  else article.removeAttribute('aria-current')
  for (const e of [article, ...article.querySelectorAll('button, a')]) e.tabIndex = chosen ? 0 : -1
}

function isoOf(ms) {
  return Number.isFinite(ms) && Math.abs(ms) < 8.64e15 ? new Date(ms).toISOString() : null
}

// quote is a line of what the message replies to, if that is here.
function quote(entry, { conversation }) {
  const parent = entry.parent_id && conversation.get(entry.parent_id)
  return parent && h('button', { type: 'button', class: 'quote', tabindex: '-1', 'data-go': entry.parent_id, 'aria-label': t('reply.go', { name: clean(cut(nameOf(parent), 64)) }) },
    h('bdi', null, line(nameOf(parent), 32)), ' ', h('span', { dir: 'auto' }, said(parent, 160)))
}

// paint brings what became of a message up to date.
export function paint(slot, entry, view) {
  const { conversation, limits } = view
  const outcomes = conversation.outcomes(entry.message_id)
  const article = slot.querySelector('.message')
  article.querySelector('.chips').replaceChildren(...chips(entry, view).filter(Boolean))
  const state = isBot(entry) ? overall(outcomes) : undefined
  if (state) article.dataset.state = state
  slot.querySelector('.ended')?.remove()
  const { end, times } = conversation.end(entry)
  if (end) slot.append(h('div', { class: 'ended', role: 'note', 'data-testid': 'ended', 'data-reason': end.stopped }, h('span', null, t(times > 1 ? 'ended.n' : 'ended', { why: why(end, limits), n: number(times) }))))
}

// place fits a message to the one before it: a date where a day begins, and no
// name again where the same sender goes on.
export function place(slot, entry, before) {
  const newDay = !before || dayKey(before.ts) !== dayKey(entry.ts)
  const known = slot.querySelector('.day')
  if (newDay && !known) slot.prepend(h('div', { class: 'day' }, h('span', null, day(entry.ts))))
  if (!newDay && known) known.remove()
  const goesOn = !newDay && !isNotice(entry) && before.sender === entry.sender && before.role === entry.role && before.thread_id === entry.thread_id &&
    !entry.parent_id && entry.ts - before.ts < GROUP_WITHIN
  slot.classList.toggle('goes-on', Boolean(goesOn))
}
