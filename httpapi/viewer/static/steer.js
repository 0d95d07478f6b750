// The panel under a group's header: which bots are there, the group's settings, and the controls that people in
// the group have with /relay.

import * as api from './api.js'
import { button, h, keepFocus, later, mark, show } from './h.js'
import { ends, explain, holds, moment, t } from './language.js'
import { FROM, botName, learn, nameText } from './names.js'
import { fault, notice, say, sure } from './notice.js'

const EVERY = 15_000 // ms between reads while the page is looked at
const SETTLE = 300 // ms of quiet after events
const CONFLICT = 409
const modes = ['all', 'named', 'default', 'one']
const times = ['', '30m', '2h', '1d'] // of a pause; '': until somebody ends it

// Steer shows a group in element, which is hidden at first. changed is called when the group became another one;
// go(id) for a message that is to be shown.
export class Steer {
  group // as the API has it; undefined: not known
  #place // { channel, chat_id }
  again = later(SETTLE, () => this.refresh()) // reads the group once more, soon
  #changes = Promise.resolve() // those that are being made, one behind the other
  #for = '' // for how long to pause and mute

  constructor(element, { changed, go }) {
    Object.assign(this, { element, changed, go })
    setInterval(() => document.hidden || !this.group || this.refresh(), EVERY)
  }

  // long is for how long to pause or mute; true: until somebody ends it.
  get #long() {
    return this.#for || true
  }

  get open() {
    return !this.element.hidden
  }

  // of turns to another group, with what the list of groups says of it.
  of(place) {
    this.#place = place
    this.group = undefined
    this.learn(place)
    if (this.open) this.refresh()
  }

  // learn takes what the list of groups says of this one, where nothing is known yet.
  learn(group) {
    if (group.settings && !this.group) this.#took(group)
  }

  toggle() {
    this.element.hidden = this.open
    this.redraw() // first: an empty panel would move the messages
    this.changed()
    if (this.open) this.refresh()
  }

  async refresh(force = false) {
    const place = this.#place
    try {
      const group = await api.group(place.channel, place.chat_id)
      if (place === this.#place) this.#took(group, force)
    } catch (error) {
      if (place !== this.#place || !this.open) return
      fault(error)
      show(this.element, h('p.soft', error.message))
    }
  }

  #took(group, force) {
    for (const { agent, name } of group.bots) learn(agent, name, FROM.group)
    const same = JSON.stringify(group) === JSON.stringify(this.group)
    this.group = group
    if (!same) this.changed()
    const at = document.activeElement
    const typing = this.element.contains(at) && at.type === 'number' && at.value !== at.defaultValue
    if (force || (!same && !typing)) this.redraw() // what is being typed would be lost
  }

  // do makes a change behind those that are being made, and shows the group as it is then.
  #do(act) {
    const place = this.#place
    this.#changes = this.#changes.then(async () => {
      if (place !== this.#place) return
      try {
        const group = await act(place.channel, place.chat_id)
        if (place === this.#place) this.#took(group, true)
        say(t('steer.done'))
      } catch (error) {
        if (error.status === CONFLICT) notice(t('steer.conflict'), 'fault')
        else fault(error)
        await this.refresh(true)
      }
    })
  }

  // set changes settings of the group, unless somebody else has changed it since it was read.
  #set(change) {
    this.#do((channel, chat) => api.changeGroup(channel, chat, { ...change, version: this.group.version }))
  }

  redraw() {
    if (!this.open) return
    this.element.ariaLabel = t('steer')
    if (this.group) keepFocus(this.element, () => this.#draw(this.group))
    else show(this.element, h('p.soft', t('loading')))
  }

  #draw({ settings, locked, bots, last_stop }) {
    const { paused, limit, judge } = settings
    const names = bots.map(({ agent }) => [agent, nameText(agent)])
    const lengths = times.map((time) => [time, t('time.' + (time || 'ever'))])
    show(this.element,
      locked && h('p.note', { data: { testid: 'steer-locked' } }, t('steer.locked')),
      h('fieldset', { disabled: locked },
        h('ul.bots', { 'aria-label': t('steer.bots') }, bots.map((bot) => this.#bot(bot))),
        h('div.settings',
          this.#select('answer', modes.map((m) => [m, t('mode.' + m)])),
          this.#select('default_bot', [['', t('steer.nobody')], ...names]),
          this.#number('limit', 1), this.#number('threshold', 0, limit), this.#number('budget', 0),
          this.#input('judge', { type: 'checkbox', checked: judge }, (input) => input.checked)),
        h('div.buttons',
          this.#button(paused ? 'resume' : 'pause', () => this.#set({ paused: !paused && this.#long })),
          h('label.for', t('steer.for'), ' ', choice('for', lengths, this.#for, (time) => (this.#for = time))),
          this.#button('stop', () => this.#do(api.stopGroup)),
          this.#button('continue', () => this.#do(api.continueGroup)),
          this.#button('forget', () => sure('steer.forget', () => this.#do(api.forgetGroup))))),
      last_stop && this.#lastStop(last_stop))
  }

  #button(name, act) {
    return button('steer-' + name, act, { title: t(`steer.${name}.means`) }, t('steer.' + name))
  }

  #bot({ agent, online, away_since: away }) {
    const muted = this.group.settings.muted[agent]
    const name = muted ? 'unmute' : 'mute'
    const state = !online ? 'offline' : away ? 'absent' : 'online'
    return h('li', { data: { testid: 'steer-bot', agent } },
      h('span.presence', { data: { state } }, botName(agent)),
      h('span.soft', t('steer.' + state), muted && ' · ' + t('steer.muted') + ends(muted)),
      button('steer-' + name, () => this.#set({ muted: { [agent]: !muted && this.#long } }),
        { 'aria-label': t(`steer.${name}.name`, { name: nameText(agent) }) }, t('steer.' + name)))
  }

  #field(key, control) {
    const source = this.group.sources[key]
    const changed = source === 'record' && h('span.mark', { title: t('source.record') }, t('steer.changed'))
    const title = `${t(`set.${key}.means`)} (${t('source.' + source)})`
    return h('label', { title }, h('span', t('set.' + key), changed), control)
  }

  #select(key, options) {
    return this.#field(key, choice(key, options, this.group.settings[key], (value) => this.#set({ [key]: value })))
  }

  #number(key, min, max) {
    const value = this.group.settings[key]
    return this.#input(key, { type: 'number', min, max, required: true, value }, (input) => Number(input.value))
  }

  #input(key, attributes, value) {
    const onchange = ({ target }) => target.reportValidity() && this.#set({ [key]: value(target) })
    return this.#field(key, h('input', { ...attributes, onchange, data: { testid: 'steer-' + key } }))
  }

  #lastStop({ message_id, reason, bots, at }) {
    const names = bots.slice(0, 20).map(nameText).join(', ')
    return h('p.soft', { data: { testid: 'steer-last' } }, t('steer.last', { time: moment(at), bots: names }), ' ',
      h('code', reason), explain(reason) && ': ' + explain(reason), ' ',
      button('steer-go', () => this.go(message_id), { class: 'link' }, t('steer.go')))
  }

  // badges say in the header what keeps bots silent.
  badges() {
    const { settings: { paused, muted = {} } = {}, locked } = this.group ?? {}
    const n = Object.values(muted).filter(holds).length
    return [
      holds(paused) && mark('wait', t('steer.paused') + ends(paused), { testid: 'paused' }),
      n > 0 && mark('wait', t('steer.muted.n', { n }), { testid: 'muted' }), locked && mark('skip', t('steer.fixed')),
    ]
  }
}

function choice(name, options, chosen, changed) {
  const option = ([value, text]) => h('option', { value, selected: value === chosen }, text)
  const onchange = (e) => changed(e.target.value)
  return h('select', { data: { testid: 'steer-' + name }, onchange }, options.map(option))
}
