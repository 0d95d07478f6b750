// The list of the groups that the bot is in.

import * as api from './api.js'
import { h, show } from './h.js'
import { t, language } from './i18n.js'
import { brief, dayKey, exact, holds, number } from './format.js'
import { line } from './text.js'
import { entryOf, forget, isBot, isMail, nameOf } from './conversation.js'
import { remembered, remember } from './memory.js'
import { hash } from './route.js'
import { ENDS, wordOf } from './verdict.js'
import { why } from './chips.js'
import { empty } from './empty.js'
import { FROM, chatName, learn } from './names.js'
import { fault } from './notice.js'

const SEEN = 500 // groups of which the browser remembers what was read
const FILTER_FROM = 8 // groups from which on there is a field to search them
const LOOKED_INTO = 20 // groups whose newest message is looked up at most
const OUTCOMES = 200 // of each
const NAME_AGAIN = 60_000 // ms before the list is read again for the name of a group that has none
const ASK_AGAIN = 1000 // ms before the list is read again for a group not known

const keyOf = (g) => g.channel + '/' + g.chat_id

export class GroupList {
  groups = [] // the newest first
  #rows = new Map() // key → link
  #seen = new Map(remembered('seen') ?? []) // key → ts of the newest message that was read
  #open // key
  #asking
  #soon
  #listed = 0 // when the list was read

  constructor(element, changed) {
    this.changed = changed
    this.filter = h('input', { type: 'search', autocomplete: 'off', 'data-testid': 'filter-groups', oninput: () => this.draw() })
    this.list = h('nav', { 'data-testid': 'groups' })
    this.mail = h('h3', { 'data-testid': 'mail-list' })
    element.append(this.filter, this.list)
  }

  async load() {
    try {
      await this.#list()
      const { groups } = await api.groups()
      this.#steered(groups)
      this.changed()
      await this.#lookInto(groups)
    } catch (error) {
      fault(error)
    }
  }

  // again reads the list once more, soon.
  again() {
    this.#soon ??= setTimeout(() => ((this.#soon = undefined), this.#list().catch(fault)), ASK_AGAIN)
  }

  async #list() {
    this.#listed = Date.now()
    const { transcripts } = await api.transcripts()
    const known = new Map(this.groups.map((g) => [keyOf(g), g]))
    for (const { last } of transcripts) if (last && isBot(last)) learn(last.sender, last.sender_name)
    for (const { name = '' } of transcripts.filter(isMail)) for (const agent of name.split(' ↔ ')) learn(agent, '', FROM.card)
    this.groups = transcripts.map((g) => {
      const { fresh = 0, last, stop, paused, known: state } = known.get(keyOf(g)) ?? {}
      return { ...g, limits: isMail(g) ? undefined : g.limits, fresh, stop, paused, known: state, last: last?.ts > newest(g) ? last : g.last } // an event may have been quicker
    })
    for (const g of this.groups) if (!this.#seen.has(keyOf(g)) || this.#isOpen(g)) this.#read(g)
    this.#remember()
    this.loaded = true
    this.draw()
    this.changed()
  }

  // steered takes what the sidecar knows of the groups besides their messages.
  #steered(groups) {
    for (const state of groups) {
      const { channel, chat_id, bots, last_stop, settings } = state
      for (const bot of bots) learn(bot.agent, bot.name, FROM.group)
      const group = this.get(channel, chat_id)
      if (!group) continue
      if (last_stop && last_stop.message_id === group.last?.message_id) group.stop = { relay_msg_id: last_stop.message_id, stopped: last_stop.reason }
      group.known = state
      group.paused = settings.paused
    }
    this.draw()
  }

  // lookInto finds the groups whose round has stopped twice: last_stop names the first message alone.
  async #lookInto(groups) {
    const stopped = groups.flatMap((g) => {
      const group = g.last_stop && this.get(g.channel, g.chat_id)
      return group?.last && isBot(group.last) && !stopOf(group) ? [group] : []
    })
    for (const group of stopped.slice(0, LOOKED_INTO)) {
      const { outcomes } = await api.outcomes(group.channel, group.chat_id, { limit: OUTCOMES })
      group.stop ??= outcomes.find((o) => o.relay_msg_id === group.last.message_id && ENDS.has(wordOf(o)))
    }
    if (stopped.length) this.draw()
  }

  // became takes note of a live outcome that stops a group at its newest message, or lets it go on.
  #became(o) {
    const group = this.get(o.channel, o.chat_id)
    if (!group || o.relay_msg_id !== group.last?.message_id) return false
    const stop = ENDS.has(wordOf(o)) ? o : o.delivered_at && group.stop?.agent === o.agent ? undefined : group.stop
    if (stop === group.stop) return false
    group.stop = stop
    return true
  }

  get(channel, chat) {
    return this.groups.find((g) => g.channel === channel && g.chat_id === chat)
  }

  // take brings in live events.
  take(events) {
    const messages = events.filter((e) => e.type === 'message')
    for (const e of messages) {
      const group = this.get(e.channel, e.chat_id)
      if (!group) {
        this.#asking ??= setTimeout(() => ((this.#asking = undefined), this.load()), ASK_AGAIN)
        continue
      }
      if (!group.name && Date.now() > this.#listed + NAME_AGAIN) this.again() // the sidecar asks Feishu for it when somebody writes
      if (group.last && (e.ts ?? e.time) < group.last.ts) continue
      group.last = entryOf(e)
      if (isBot(group.last)) learn(e.sender, e.sender_name)
      if (this.#isOpen(group)) this.#read(group)
      else group.fresh++
    }
    const recalled = events.filter((e) => e.type === 'recall')
    for (const e of recalled) {
      const group = this.get(e.channel, e.chat_id)
      if (group?.last?.message_id === e.relay_msg_id) group.last = forget({ ...group.last })
    }
    const stopped = events.filter((e) => e.type === 'outcome' && this.#became(e.outcome)).length > 0
    const steered = events.filter((e) => e.type === 'notice' && e.set && 'paused' in e.set)
    for (const e of steered) {
      const group = this.get(e.channel, e.chat_id)
      if (group) group.paused = e.set.paused
    }
    if (!messages.length && !recalled.length && !stopped && !steered.length) return
    this.#remember()
    this.draw()
  }

  // opened tells which group is on the screen, if any.
  opened(group) {
    this.#open = group && keyOf(group)
    if (group) {
      this.#read(group)
      this.#remember()
    }
    this.draw()
  }

  #isOpen = (g) => keyOf(g) === this.#open && !document.hidden

  #read(group) {
    group.fresh = 0
    this.#seen.delete(keyOf(group))
    this.#seen.set(keyOf(group), newest(group))
  }

  #remember() {
    remember('seen', [...this.#seen].slice(-SEEN))
  }

  // beside is the group by so many places before or behind the open one.
  beside(by) {
    const i = this.groups.findIndex((g) => keyOf(g) === this.#open)
    return this.groups[i < 0 ? 0 : i + by]
  }

  draw() {
    this.groups.sort((a, b) => isMail(a) - isMail(b) || newest(b) - newest(a))
    this.filter.hidden = this.groups.length < FILTER_FROM
    this.filter.placeholder = t('groups.filter')
    this.filter.setAttribute('aria-label', t('groups.filter'))
    this.list.setAttribute('aria-label', t('groups'))
    const wanted = this.filter.hidden ? '' : this.filter.value.trim().toLowerCase()
    const shown = this.groups.filter((g) => `${chatName(g)} ${g.chat_id}`.toLowerCase().includes(wanted))
    const rows = shown.map((g) => this.#row(g))
    const mail = shown.findIndex(isMail)
    if (mail >= 0) rows.splice(mail, 0, show(this.mail, t('mail.list')))
    if (!rows.length) show(this.list, !this.loaded || wanted ? h('p', { class: 'empty', 'data-testid': 'empty' }, t(wanted ? 'empty.filter' : 'loading')) : empty('empty.groups', 'feishu-relay check'))
    else this.#order(rows)
  }

  // order puts rows into the list, and moves those alone that stand elsewhere.
  #order(rows) {
    const { list } = this
    const focused = document.activeElement
    rows.forEach((row, i) => list.children[i] === row || list.insertBefore(row, list.children[i] ?? null))
    while (list.childElementCount > rows.length) list.lastElementChild.remove()
    if (focused !== document.activeElement && list.contains(focused)) focused.focus({ preventScroll: true })
  }

  // row is always the same element for a group, so that it keeps the focus. It is
  // drawn anew only if it says something else: there may be thousands.
  #row(group) {
    const key = keyOf(group)
    let row = this.#rows.get(key)
    if (!row) this.#rows.set(key, (row = h('a', { class: 'group', href: hash(group.channel, group.chat_id), 'data-testid': 'group', 'data-chat-id': group.chat_id })))
    const unread = newest(group) > (this.#seen.get(key) ?? 0)
    row.toggleAttribute('data-unread', unread)
    if (key === this.#open) row.setAttribute('aria-current', 'page')
    else row.removeAttribute('aria-current')
    const { last } = group
    const says = JSON.stringify([language(), dayKey(Date.now()), chatName(group), newest(group), last?.message_id, last && nameOf(last), last?.recalled, unread, group.fresh, stopOf(group), holds(group.paused)])
    if (row.says === says) return row
    row.says = says
    return show(row,
      h('bdi', { class: 'name' }, line(chatName(group), 80)),
      h('time', { title: exact(newest(group)) }, brief(newest(group))),
      h('span', { class: 'last' }, last && [h('bdi', null, line(nameOf(last), 24)), ': ', last.recalled ? t('recalled') : line(last.content ?? '', 80)]),
      h('span', { class: 'signs' },
        stopOf(group) && h('span', { class: 'state', 'data-state': 'stop', 'data-testid': 'group-stopped', title: stopOf(group) }, t('state.stop')),
        holds(group.paused) && h('span', { class: 'state', 'data-state': 'wait', 'data-testid': 'group-paused' }, t('steer.paused')),
        unread && h('span', { class: 'unread', 'aria-label': t('unread') }, group.fresh ? number(group.fresh) : '')))
  }
}

// stopOf says why the newest message of a group went to no bot; '' if none was stopped.
const stopOf = ({ stop, last, limits }) => (stop && stop.relay_msg_id === last?.message_id ? why(stop, limits) : '')

const newest = (group) => group.last?.ts ?? group.modified ?? 0
