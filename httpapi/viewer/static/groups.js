// The list of the groups that the bot is in.

import * as api from './api.js'
import { h, show } from './h.js'
import { t, language } from './i18n.js'
import { brief, dayKey, exact, number } from './format.js'
import { line } from './text.js'
import { entryOf, forget, isBot, nameOf } from './conversation.js'
import { remembered, remember } from './memory.js'
import { hash } from './route.js'
import { learn } from './names.js'
import { fault } from './notice.js'

const SEEN = 500 // groups of which the browser remembers what was read
const FILTER_FROM = 8 // groups from which on there is a field to search them
const ASK_AGAIN = 1000 // ms before the list is read again for a group not known

const keyOf = (g) => g.channel + '/' + g.chat_id

export class GroupList {
  groups = [] // the newest first
  #rows = new Map() // key → link
  #seen = new Map(remembered('seen') ?? []) // key → ts of the newest message that was read
  #open // key
  #asking

  constructor(element, changed) {
    this.changed = changed
    this.filter = h('input', { type: 'search', autocomplete: 'off', 'data-testid': 'filter-groups', oninput: () => this.draw() })
    this.list = h('nav', { 'data-testid': 'groups' })
    element.append(this.filter, this.list)
  }

  async load() {
    try {
      const [{ transcripts }, { groups }] = await Promise.all([api.transcripts(), api.groups().catch(() => ({ groups: [] }))])
      for (const bot of groups.flatMap((g) => g.bots)) learn(bot.agent, bot.name, true)
      const known = new Map(this.groups.map((g) => [keyOf(g), g]))
      for (const { last } of transcripts) if (last && isBot(last)) learn(last.sender, last.sender_name)
      this.groups = transcripts.map((g) => {
        const { fresh = 0, last } = known.get(keyOf(g)) ?? {}
        return { ...g, fresh, last: last?.ts > newest(g) ? last : g.last } // an event may have been quicker
      })
      for (const g of this.groups) if (!this.#seen.has(keyOf(g))) this.#read(g)
      this.#remember()
      this.loaded = true
      this.draw()
      this.changed()
    } catch (error) {
      fault(error)
    }
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
    if (!messages.length && !recalled.length) return
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
    this.groups.sort((a, b) => newest(b) - newest(a))
    this.filter.hidden = this.groups.length < FILTER_FROM
    this.filter.placeholder = t('groups.filter')
    this.filter.setAttribute('aria-label', t('groups.filter'))
    this.list.setAttribute('aria-label', t('groups'))
    const wanted = this.filter.hidden ? '' : this.filter.value.trim().toLowerCase()
    const shown = this.groups.filter((g) => `${g.name ?? ''} ${g.chat_id}`.toLowerCase().includes(wanted))
    const rows = shown.map((g) => this.#row(g))
    if (!rows.length) show(this.list, h('p', { class: 'empty', 'data-testid': 'empty' }, t(this.loaded ? (wanted ? 'empty.filter' : 'empty.groups') : 'loading')))
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
    const says = JSON.stringify([language(), dayKey(Date.now()), group.name, newest(group), last?.message_id, last && nameOf(last), last?.recalled, unread, group.fresh])
    if (row.says === says) return row
    row.says = says
    return show(row,
      h('bdi', { class: 'name' }, line(group.name || group.chat_id, 80)),
      h('time', { title: exact(newest(group)) }, brief(newest(group))),
      h('span', { class: 'last' }, last && [h('bdi', null, line(nameOf(last), 24)), ': ', last.recalled ? t('recalled') : line(last.content ?? '', 80)]),
      unread && h('span', { class: 'unread', 'aria-label': t('unread') }, group.fresh ? number(group.fresh) : ''))
  }
}

const newest = (group) => group.last?.ts ?? group.modified ?? 0
