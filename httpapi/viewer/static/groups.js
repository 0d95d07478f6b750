// The list of the groups that the bot is in.

import * as api from './api.js'
import { h, later, mark, order, show } from './h.js'
import { brief, dayKey, exact, holds, language, number, remember, remembered, t } from './language.js'
import { line } from './text.js'
import { entryOf } from './conversation.js'
import { FROM, chatName, isBot, learn, nameOf } from './names.js'
import { hash } from './route.js'
import { said } from './message.js'
import { isEnd, why } from './verdict.js'
import { empty, fault } from './notice.js'

const SEEN = 500 // groups of which the browser remembers what was read
const LOOKED_INTO = 20 // groups whose newest message is looked up at most
const OUTCOMES = 200 // of each
const NAME_AGAIN = 60_000 // ms before the list is read again for the name of a group that has none
const ASK_AGAIN = 1000 // ms before the list is read again for a group that is not known

const keyOf = (g) => g.channel + '/' + g.chat_id
const newest = (group) => group.last?.ts ?? group.modified ?? 0

// stopOf says why the newest message of a group was not given to a bot; '' if it was not stopped.
const stopOf = ({ stop, last, limits }) => (stop && stop.relay_msg_id === last?.message_id ? why(stop, limits) : '')

export class GroupList {
  groups = [] // the newest first
  loaded = false
  #rows = new Map() // key → link
  #seen = new Map(remembered('seen') ?? []) // key → ts of the newest message that was read
  #open // key
  again = later(ASK_AGAIN, () => this.load()) // reads the list once more, soon
  #listed = 0 // when the list was read

  constructor(list, changed) {
    Object.assign(this, { list, changed })
  }

  async load() {
    try {
      this.#listed = Date.now()
      const [{ transcripts }, { groups }] = await Promise.all([api.transcripts(), api.groups()])
      const states = new Map(groups.map((g) => [keyOf(g), g]))
      for (const { agent, name } of groups.flatMap((g) => g.bots)) learn(agent, name, FROM.group)
      this.groups = transcripts.map((g) => this.#known(g, states.get(keyOf(g))))
      for (const g of this.groups) if (!this.#seen.has(keyOf(g))) this.#seen.set(keyOf(g), newest(g))
      this.loaded = true
      this.draw()
      this.changed()
      await this.#lookInto()
    } catch (error) {
      fault(error)
    }
  }

  // known is a group as the API lists it and as the events have told.
  #known(group, state) {
    const { fresh = 0, last, stop } = this.get(group.channel, group.chat_id) ?? {}
    const g = { ...state, ...group, paused: state?.settings.paused, fresh, stop }
    if (last?.ts > newest(g)) g.last = last // an event was quicker
    if (g.last && isBot(g.last)) learn(g.last.sender, g.last.sender_name)
    const { message_id, reason } = g.last_stop ?? {}
    if (message_id && message_id === g.last?.message_id) g.stop = { relay_msg_id: message_id, stopped: reason }
    return g
  }

  // lookInto finds the groups whose round has stopped twice: last_stop names the first message alone.
  async #lookInto() {
    const stopped = this.groups.filter((g) => g.last_stop && g.last && isBot(g.last) && !stopOf(g))
    for (const group of stopped.slice(0, LOOKED_INTO)) {
      const { outcomes } = await api.outcomes(group.channel, group.chat_id, OUTCOMES)
      group.stop ??= outcomes.find((o) => o.relay_msg_id === group.last.message_id && isEnd(o))
    }
    if (stopped.length) this.draw()
  }

  get(channel, chat) {
    return this.groups.find((g) => g.channel === channel && g.chat_id === chat)
  }

  // take brings in live events.
  take(events) {
    let changed = false
    for (const e of events) {
      const { channel, chat_id } = e.outcome ?? e
      const group = this.get(channel, chat_id)
      if (group) changed = this.#took(group, e) || changed
      else if (e.type === 'message') this.again()
    }
    if (changed) this.draw()
  }

  // took takes an event of a group, and returns whether the list says something else then.
  #took(group, e) {
    const { type, outcome, set } = e
    const { last, stop } = group
    const about = (outcome ?? e).relay_msg_id === last?.message_id
    if (type === 'message' && !(e.ts < last?.ts)) {
      group.last = entryOf(e)
      group.fresh++
      this.#read(group)
      if (isBot(e)) learn(e.sender, e.sender_name)
      if (!group.name && Date.now() > this.#listed + NAME_AGAIN) this.again() // the sidecar asks Feishu for it
    } else if (type === 'recall' && about) group.last = { ...last, recalled: true }
    else if (type === 'notice' && set && 'paused' in set) group.paused = set.paused
    else if (outcome && about && isEnd(outcome)) group.stop = outcome
    else if (outcome?.delivered_at && about && stop?.agent === outcome.agent) group.stop = undefined
    else return false
    return true
  }

  // opened says which group is on the screen, if any.
  opened(group) {
    this.#open = group && keyOf(group)
    if (group) this.#read(group)
    this.draw()
  }

  // read notes that a group's messages were read, if it is on the screen.
  #read(group) {
    const key = keyOf(group)
    if (key !== this.#open || document.hidden) return
    group.fresh = 0
    this.#seen.delete(key)
    this.#seen.set(key, newest(group))
    remember('seen', [...this.#seen].slice(-SEEN))
  }

  // beside is the group before or behind the open one.
  beside(by) {
    const i = this.groups.findIndex((g) => keyOf(g) === this.#open)
    return this.groups[i < 0 ? 0 : i + by]
  }

  draw() {
    const { list, groups } = this
    groups.sort((a, b) => newest(b) - newest(a))
    list.ariaLabel = t('groups')
    const rows = groups.map((g) => this.#row(g))
    if (rows.length) order(list, rows)
    else show(list, this.loaded ? empty('empty.groups', 'feishu-relay check') : empty('loading'))
  }

  // row is always the same element for a group, so that it keeps the focus. It is drawn again only if it says
  // something else: there may be thousands.
  #row(group) {
    const { channel, chat_id, last, paused, fresh } = group
    const key = keyOf(group)
    const link = { href: hash(channel, chat_id), data: { testid: 'group', chatId: chat_id } }
    const row = this.#rows.get(key) ?? h('a.group', link)
    this.#rows.set(key, row)
    const stop = stopOf(group)
    const unread = newest(group) > (this.#seen.get(key) ?? 0)
    row.toggleAttribute('data-unread', unread)
    row.ariaCurrent = key === this.#open ? 'page' : null
    const says = JSON.stringify([language(), dayKey(Date.now()), chatName(group), newest(group), last?.message_id,
      last && nameOf(last), last?.recalled, unread, fresh, stop, holds(paused)])
    if (row.says === says) return row
    row.says = says
    return show(row,
      h('bdi.name', line(chatName(group), 80)),
      h('time', { title: exact(newest(group)) }, brief(newest(group))),
      h('span.last', last && [h('bdi', line(nameOf(last), 24)), ': ', said(last, 80)]),
      h('span.signs',
        stop && mark('stop', t('state.stop'), { testid: 'group-stopped' }, stop),
        holds(paused) && mark('wait', t('steer.paused'), { testid: 'group-paused' }),
        unread && h('span.unread', { 'aria-label': t('unread') }, fresh ? number(fresh) : '')))
  }
}
