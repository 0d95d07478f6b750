// One message in the conversation, and the sentences about it.

import { h, icon, show } from './h.js'
import { clock, day, dayKey, ends, exact, explain, filled, listed, number, t } from './language.js'
import { body, clean, cut, line, plain } from './text.js'
import { avatar, botName, called, isBot, isNotice, nameOf, nameTag } from './names.js'
import { signs, why, wordOf } from './verdict.js'

const GOES_ON_WITHIN = 5 * 60_000 // ms between messages of one sender that have one name above them
const SAME = ['sender', 'role', 'thread_id']

// row makes the element of a message: a slot with room for a date before it and the end of a conversation
// after it, which paint fills. parent is what it replies to, if that is here.
export function row(entry, parent, query) {
  const { thread_id: thread, message_id: id, role } = entry
  const textName = (of) => clean(cut(nameOf(of), 64))
  const data = { testid: 'message', messageId: id, role, agent: isBot(entry) && entry.sender }
  const article = h('article.message', { 'aria-label': t('message.by', { name: textName(entry) }), data },
    isNotice(entry) ? h('span.avatar', { 'aria-hidden': 'true' }, icon('notice')) : avatar(entry),
    h('div.who', isNotice(entry) ? noticeTag(entry) : nameTag(entry),
      h('time', { title: exact(entry.ts) }, clock(entry.ts)),
      entry.edited && h('span.soft', { data: { testid: 'edited' } }, t('edited')),
      thread && h('button.thread-mark', { title: t('thread.only'), data: { thread } }, icon('thread'), t('thread'))),
    parent && h('button.quote', { data: { go: parent.message_id }, title: t('reply.go', { name: textName(parent) }) },
      h('bdi', line(nameOf(parent), 32)), ' ', h('span', { dir: 'auto' }, said(parent, 160))),
    textOf(entry, query), h('div.chips'))
  const slot = h('div', { class: thread ? 'slot threaded' : 'slot' }, h('div'), article, h('div'))
  select(article, false)
  return slot
}

// select marks the message that is selected: Tab reaches it and what is in it.
export function select(article, selected = true) {
  article.ariaCurrent = selected ? 'true' : null
  for (const e of [article, ...article.querySelectorAll('button, a')]) e.tabIndex = selected ? 0 : -1
}

// paint shows what follows from other messages: what became of this one, and how it follows the one before.
export function paint(slot, fact, before, limits) {
  const { entry, entry: { depth: n }, end, ends } = fact
  const [over, article, under] = slot.children
  const newDay = dayKey(before?.ts) !== dayKey(entry.ts)
  show(over, newDay && h('div.day', h('span', day(entry.ts))))
  show(article.querySelector('.chips'),
    n > 0 && h('span.depth', { title: t('depth.means', { n }), data: { depth: n } }, t('depth.n', { n })),
    fact.said.map(chip))
  show(under, end && h('div.ended', { role: 'note', data: { testid: 'ended', reason: end.stopped } },
    h('span', t(ends > 1 ? 'ended.n' : 'ended', { why: why(end, limits), n: number(ends) }))))
  if (fact.state) article.dataset.state = fact.state
  slot.classList.toggle('goes-on', Boolean(before) && !newDay && !isNotice(entry) && !entry.parent_id &&
    entry.ts - before.ts < GOES_ON_WITHIN && SAME.every((name) => before[name] === entry[name]))
}

// said is a line of a message's text.
export const said = (entry, length) => (entry.recalled ? t('recalled') : line(entry.content ?? '', length))

function textOf(entry, query) {
  if (entry.recalled) return h('div.text.gone', { data: { testid: 'recalled' } }, t('recalled'))
  if (entry.content || !isNotice(entry)) return body(entry.content ?? '', query)
  return h('div.text', t('act.' + entry.act), entry.act === 'set' && ' ' + changes(entry.set ?? {}))
}

// changes says what a command changed.
function changes(set) {
  const one = ([key, value]) => {
    const agent = key.startsWith('muted:') && key.slice('muted:'.length)
    if (agent) return `${called(agent)} ${value ? t('steer.muted') + ends(value) : t('steer.unmuted')}`
    if (key === 'paused') return value ? t('steer.paused') + ends(value) : t('steer.unpaused')
    if (value === null) return `${t('set.' + key)} ${t('set.forgotten')}`
    if (key === 'answer') return `${t('set.answer')} ${t('mode.' + value)}`
    if (key === 'default_bot') return `${t('set.default_bot')} ${value ? called(value) : t('steer.nobody')}`
    return `${t('set.' + key)} ${typeof value === 'boolean' ? t(value ? 'on' : 'off') : value}`
  }
  return clean(cut(Object.entries(set).map(one).join(', '), 400))
}

// noticeTag is who gave a command, or that the sidecars say something.
function noticeTag(entry) {
  const command = entry.kind === 'command'
  const kind = command ? 'command' : entry.act === 'stop' ? 'stop' : 'answer'
  return [
    command && h('bdi.name', plain(cut(entry.by === 'api' ? t('by.api') : nameOf(entry), 64))),
    h('span.mark', { data: { testid: 'notice-kind', kind: entry.kind, act: entry.act } }, t('kind.' + kind)),
  ]
}

function chip(sentence) {
  const { list, state, lacks } = sentence
  const name = ({ agent, stopped, decision: { tier, reason } = {} }) => {
    const outcome = { testid: 'outcome', agent, state, tier, reason: stopped || reason }
    return botName(agent, { data: lacks ? { testid: 'unheard', agent } : outcome })
  }
  return h('span.chip', { title: explain(wordOf(list[0])) || null, data: { testid: 'sentence', state } },
    h('i.sign', { 'aria-hidden': 'true' }, signs[state]), ' ', h('span', textOfSentence(sentence, name)))
}

// textOfSentence says what became of a message at some bots.
export const textOfSentence = ({ word, list, why, time }, name = (o) => botName(o.agent)) =>
  filled(word, { who: listed(list.map(name)), why: plain(why ?? ''), time })
