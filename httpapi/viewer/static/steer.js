// The panel under a group's header: who is there, what holds in the group, and the
// switches that people in the group have with /relay.

import * as api from './api.js'
import { h, show } from './h.js'
import { t, explain } from './i18n.js'
import { ends, holds, moment } from './format.js'
import { botName, nameText } from './person.js'
import { keepFocus } from './focus.js'
import { FROM, learn } from './names.js'
import { fault, notice, say } from './notice.js'

const EVERY = 15_000 // ms between looks while the panel is open
const SETTLE = 300 // ms of quiet after events
const CONFLICT = 409
const modes = ['all', 'named', 'default', 'one']
const times = ['', '30m', '2h', '1d'] // of a pause; '': until somebody ends it

// Steer shows a group in element, which is hidden at first. changed is called when the
// group is known anew; go(id) for a message that is to be shown.
export class Steer {
  group // as the API has it; undefined: not known
  #drawn // the group that the controls show
  #place = { channel: '', chat: '' }
  #soon
  #last = Promise.resolve() // of the changes that are being made
  #became = new Map() // version → what it became by a change made here
  #sure = false // forget was pressed once
  #for = '' // for how long to pause and mute

  constructor(element, { changed, go }) {
    Object.assign(this, { element, changed, go })
    setInterval(() => document.hidden || !this.group || this.refresh(), EVERY)
  }

  get open() {
    return !this.element.hidden
  }

  // of turns to another group; known: as the list of groups has it, if it does.
  of(channel, chat, known) {
    clearTimeout(this.#soon)
    this.#soon = undefined
    this.#place = { channel, chat }
    this.#drawn = undefined
    this.group = known
    this.#became.clear()
    this.#sure = false
    this.changed()
    if (this.open) this.refresh()
  }

  // learn takes what the list of groups says of this one, where nothing is known yet.
  learn(known) {
    if (known && !this.group) this.#took(known)
  }

  toggle() {
    this.element.hidden = this.open
    this.#sure = false
    this.redraw() // first: an empty panel would move the messages
    this.changed()
    if (this.open) this.refresh()
  }

  // close returns whether the keyboard was in the panel, which is closed then.
  close() {
    if (!this.element.contains(document.activeElement)) return false
    this.toggle()
    return true
  }

  // again reads the group once more, soon.
  again() {
    this.#soon ??= setTimeout(() => this.refresh(), SETTLE)
  }

  async refresh(force = false) {
    clearTimeout(this.#soon)
    this.#soon = undefined
    const place = this.#place
    try {
      const group = await api.group(place.channel, place.chat)
      if (place === this.#place) this.#took(group, force)
    } catch (error) {
      if (place !== this.#place || !this.open) return
      fault(error)
      show(this.element, h('p', { class: 'soft' }, error.message))
    }
  }

  #took(group, force) {
    for (const bot of group.bots) learn(bot.agent, bot.name, FROM.group)
    const same = !force && JSON.stringify(group) === JSON.stringify(this.group)
    this.group = group
    if (same) return
    this.changed()
    if (force || !this.#typing()) this.redraw()
  }

  // typing reports whether a number is being typed, which drawing anew would undo.
  #typing() {
    const at = document.activeElement
    return this.element.contains(at) && at.type === 'number' && at.value !== at.defaultValue
  }

  // do makes a change behind those that are being made, and shows the group as it is then.
  #do(act) {
    this.#sure = false
    const place = this.#place
    return (this.#last = this.#last.then(() => place === this.#place && this.#make(act, place)))
  }

  async #make(act, place) {
    try {
      const group = await act(place.channel, place.chat)
      if (place !== this.#place) return
      this.#took(group, true)
      say(t('steer.done'))
    } catch (error) {
      if (error.status === CONFLICT) notice(t('steer.conflict'), 'fault')
      else fault(error)
      await this.refresh(true)
    }
  }

  // set changes settings of the group that is shown. What was changed here meanwhile is no conflict.
  #set(change) {
    let { version } = this.#drawn
    return this.#do(async (channel, chat) => {
      while (this.#became.has(version)) version = this.#became.get(version)
      const group = await api.changeGroup(channel, chat, { ...change, version })
      if (group.version !== version) this.#became.set(version, group.version)
      return group
    })
  }

  redraw() {
    if (this.element.hidden) return
    this.element.setAttribute('aria-label', t('steer'))
    if (!this.group) return show(this.element, h('p', { class: 'soft' }, t('loading')))
    keepFocus(this.element, () => this.#draw())
  }

  #draw() {
    const g = (this.#drawn = this.group)
    const { settings: s, locked } = g
    show(this.element,
      locked && h('p', { class: 'note', 'data-testid': 'steer-locked' }, t('steer.locked')),
      h('ul', { class: 'bots', 'aria-label': t('steer.bots') }, g.bots.map((bot) => this.#bot(bot))),
      h('div', { class: 'settings' },
        this.#select('answer', modes.map((m) => [m, t('mode.' + m)])),
        this.#select('default_bot', [['', t('steer.nobody')], ...g.bots.map((b) => [b.agent, nameText(b.agent)])]),
        this.#number('limit', 1), this.#number('threshold', 0, s.limit), this.#number('budget', 0),
        this.#field('judge', h('input', { type: 'checkbox', disabled: locked, 'data-testid': 'steer-judge', checked: s.judge, onchange: (e) => this.#set({ judge: e.target.checked }) }))),
      h('div', { class: 'buttons' },
        this.#button(s.paused ? 'resume' : 'pause', () => this.#set({ paused: s.paused ? false : this.#for || true })),
        h('label', { class: 'for' }, t('steer.for'), ' ', this.#choice('for', times.map((time) => [time, t('time.' + (time || 'ever'))]), this.#for, (value) => (this.#for = value))),
        this.#button('stop', () => this.#do(api.stopGroup)),
        this.#button('continue', () => this.#do(api.continueGroup)),
        this.#sure
          ? h('span', { class: 'buttons', role: 'group', 'aria-label': t('steer.forget.sure') }, t('steer.forget.sure'), this.#button('forget.yes', () => this.#do(api.forgetGroup), 'primary'), this.#button('cancel', () => this.#ask(false)))
          : this.#button('forget', () => this.#ask(true))),
      g.last_stop && this.#lastStop(g.last_stop))
  }

  #ask(sure) {
    this.#sure = sure
    this.redraw()
    this.element.querySelector(`[data-testid="steer-${sure ? 'forget.yes' : 'forget'}"]`)?.focus()
  }

  #button(name, act, kind) {
    return h('button', { type: 'button', class: kind, disabled: this.group.locked, title: t(`steer.${name}.means`), 'data-testid': 'steer-' + name, onclick: act }, t('steer.' + name))
  }

  #bot({ agent, online, away_since: away }) {
    const muted = this.group.settings.muted[agent]
    return h('li', { 'data-testid': 'steer-bot', 'data-agent': agent, 'data-online': String(online), 'data-muted': muted ? 'true' : null },
      h('span', { class: 'presence', 'data-state': !online ? 'offline' : away ? 'absent' : 'idle' }, botName(agent)),
      h('span', { class: 'soft' }, t(!online ? 'presence.offline' : away ? 'steer.absent' : 'steer.online'), muted && ' · ' + t('steer.muted') + ends(muted)),
      h('button', { type: 'button', disabled: this.group.locked, 'data-testid': muted ? 'steer-unmute' : 'steer-mute', 'aria-label': t(muted ? 'steer.unmute.name' : 'steer.mute.name', { name: nameText(agent) }), onclick: () => this.#set({ muted: { [agent]: muted ? false : this.#for || true } }) },
        t(muted ? 'steer.unmute' : 'steer.mute')))
  }

  #field(key, control) {
    const source = this.group.sources[key]
    return h('label', { title: `${t('set.' + key + '.means')} (${t('source.' + source)})` }, h('span', null, t('set.' + key), source === 'record' && h('span', { class: 'mark', title: t('source.record') }, t('steer.changed'))), control)
  }

  #select(key, options) {
    return this.#field(key, this.#choice(key, options, this.group.settings[key], (value) => this.#set({ [key]: value })))
  }

  #choice(name, options, value, changed) {
    const select = h('select', { disabled: this.group.locked, 'data-testid': 'steer-' + name, onchange: () => changed(select.value) }, options.map(([v, text]) => h('option', { value: v }, text)))
    select.value = value
    return select
  }

  #number(key, min, max) {
    const changed = ({ target }) => target.reportValidity() && this.#set({ [key]: Number(target.value) })
    return this.#field(key, h('input', { type: 'number', min, max, step: 1, required: true, inputmode: 'numeric', disabled: this.group.locked, value: this.group.settings[key], 'data-testid': 'steer-' + key, onchange: changed }))
  }

  #lastStop({ message_id, reason, bots, at }) {
    return h('p', { class: 'soft', 'data-testid': 'steer-last' }, t('steer.last', { time: moment(at), bots: bots.slice(0, 20).map(nameText).join(', ') }), ' ', h('code', null, reason), explain(reason) && ': ' + explain(reason), ' ',
      h('button', { type: 'button', class: 'link', onclick: () => this.go(message_id) }, t('steer.go')))
  }

  // badges tell in the header what keeps bots silent.
  badges() {
    if (!this.group) return []
    const { settings, locked } = this.group
    const muted = Object.values(settings.muted).filter(holds).length
    return [
      holds(settings.paused) && h('span', { class: 'state', 'data-state': 'wait', 'data-testid': 'paused' }, t('steer.paused') + ends(settings.paused)),
      muted > 0 && h('span', { class: 'state', 'data-state': 'wait', 'data-testid': 'muted' }, t('steer.muted.n', { n: muted })),
      locked && h('span', { class: 'state' }, t('steer.fixed')),
    ]
  }
}
