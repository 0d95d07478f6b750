// The bar over a conversation: search, and which messages are shown.

import { button, h, icon, show } from './h.js'
import { t } from './language.js'
import { isBot, isPerson, nameOf } from './names.js'
import { stateOf } from './verdict.js'

const kinds = ['all', 'people', 'bots', 'stopped', 'waiting']
const LONGEST = '66' // characters of a search: the API takes 200 bytes
const TYPING = 200 // ms of quiet before a search

const everything = { kind: 'all', query: '', thread: '' }

// FindBar holds the filter and calls changed after it became another one.
export class FindBar {
  filter = everything
  #typing

  constructor(element, changed) {
    Object.assign(this, { element, changed })
    const oninput = () => {
      clearTimeout(this.#typing)
      this.#typing = setTimeout(() => this.set({ query: this.input.value.trim() }), TYPING)
    }
    this.input = h('input', { type: 'search', maxlength: LONGEST, oninput, data: { testid: 'search' } })
    this.buttons = kinds.map((kind) => button('filter-' + kind, () => this.set({ kind }), { class: 'kind' }))
    this.group = h('div.kinds', { role: 'group' }, this.buttons)
    this.thread = button('filter-thread', () => this.set({ thread: '' }), { class: 'kind on' })
    element.append(h('label.search', icon('search'), this.input), this.group, this.thread)
  }

  // all reports whether everything is shown.
  get all() {
    return this.filter === everything
  }

  // matches reports whether the filter leaves a message.
  matches({ entry, outcomes }) {
    const { kind, query, thread } = this.filter
    const wanted = query.toLowerCase()
    const has = (text) => text?.toLowerCase().includes(wanted)
    const state = { stopped: 'stop', waiting: 'wait' }[kind]
    return (!thread || entry.thread_id === thread) &&
      (!query || [entry.content, entry.sender, nameOf(entry)].some(has)) &&
      (kind !== 'people' || isPerson(entry)) && (kind !== 'bots' || isBot(entry)) &&
      (!state || (isBot(entry) && outcomes.some((o) => stateOf(o) === state)))
  }

  // draw shows the filter.
  draw() {
    this.input.placeholder = t('search')
    this.input.ariaLabel = t('search')
    this.group.ariaLabel = t('filter')
    for (const [i, kind] of kinds.entries()) {
      const button = this.buttons[i]
      button.textContent = t('filter.' + kind)
      button.ariaPressed = String(this.filter.kind === kind)
    }
    this.thread.hidden = !this.filter.thread
    show(this.thread, icon('thread'), t('thread.left'), ' ×')
  }

  // set changes parts of the filter.
  set(parts) {
    clearTimeout(this.#typing)
    const filter = { ...this.filter, ...parts }
    this.filter = Object.keys(filter).every((key) => filter[key] === everything[key]) ? everything : filter
    if (document.activeElement !== this.input) this.input.value = filter.query
    this.changed()
  }

  // clear forgets the filter; nothing is drawn.
  clear() {
    clearTimeout(this.#typing)
    this.filter = everything
    this.input.value = ''
  }

  // reset shows everything again, and returns whether that was a change.
  reset() {
    this.input.value = ''
    if (this.all) return false
    this.set(everything)
    return true
  }
}
