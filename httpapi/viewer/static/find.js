// The bar over a conversation: search, and what of it is shown.

import { h, show, icon } from './h.js'
import { t } from './i18n.js'
import { number } from './format.js'
import { clean, cut } from './text.js'
import { nameText } from './person.js'
import { isBot } from './conversation.js'
import { stateOf } from './verdict.js'

const kinds = ['all', 'people', 'bots', 'stopped', 'waiting']
const LONGEST = '66' // characters of a search: the API takes 200 bytes
const TYPING = 200 // ms of quiet before a search

export const everything = () => ({ kind: 'all', agent: '', query: '', thread: '' })
export const isEverything = (f) => f.kind === 'all' && !f.agent && !f.query && !f.thread

// matcher tells which entries a filter leaves.
export function matcher(filter, conversation) {
  const query = filter.query.toLowerCase()
  const has = (text) => text !== undefined && text.toLowerCase().includes(query)
  return (entry) => {
    if (!conversation.repeats(entry)) return false
    if (filter.thread && entry.thread_id !== filter.thread) return false
    if (query && !has(entry.content) && !has(entry.sender_name) && !has(entry.sender)) return false
    if (filter.kind === 'stopped' || filter.kind === 'waiting') {
      const state = filter.kind === 'stopped' ? 'stop' : 'wait'
      return isBot(entry) && conversation.outcomes(entry.message_id).some((o) => stateOf(o) === state && (!filter.agent || o.agent === filter.agent))
    }
    if (filter.kind === 'people' && entry.role !== 'user') return false
    if (filter.kind === 'bots' && !isBot(entry)) return false
    return !filter.agent || (isBot(entry) && entry.sender === filter.agent)
  }
}

// FindBar holds the filter and calls changed with it.
export class FindBar {
  filter = everything()
  #typing

  constructor(element, changed) {
    Object.assign(this, { element, changed })
    this.input = h('input', { type: 'search', 'data-testid': 'search', autocomplete: 'off', spellcheck: 'false', maxlength: LONGEST, oninput: () => this.#typed() })
    this.buttons = kinds.map((kind) => h('button', { type: 'button', class: 'kind', 'data-kind': kind, 'data-testid': 'filter-' + kind, onclick: () => this.set({ kind }) }))
    this.group = h('div', { class: 'kinds', role: 'group' }, this.buttons)
    this.agents = h('select', { 'data-testid': 'filter-agent', onchange: () => this.set({ agent: this.agents.value }) })
    this.thread = h('button', { type: 'button', class: 'kind on', 'data-testid': 'filter-thread', onclick: () => this.set({ thread: '' }) })
    this.count = h('span', { class: 'soft', 'data-testid': 'found' })
    element.append(h('label', { class: 'search' }, icon('search'), this.input), this.group, this.agents, this.thread, this.count)
  }

  #typed() {
    clearTimeout(this.#typing)
    this.#typing = setTimeout(() => this.set({ query: this.input.value.trim() }), TYPING)
  }

  // draw shows the filter, the agents there are to choose from, and how many
  // messages it leaves. In mail there are no people.
  draw(agents, found, mail) {
    const { filter } = this
    this.input.placeholder = t('search')
    this.input.setAttribute('aria-label', t('search'))
    this.group.setAttribute('aria-label', t('filter'))
    for (const button of this.buttons) {
      button.textContent = t('filter.' + button.dataset.kind)
      button.hidden = mail && (button.dataset.kind === 'people' || button.dataset.kind === 'bots')
      button.setAttribute('aria-pressed', String(filter.kind === button.dataset.kind))
    }
    this.agents.setAttribute('aria-label', t('filter.agent'))
    show(this.agents, h('option', { value: '' }, t('filter.agent')), agents.map((a) => h('option', { value: a, title: clean(cut(a, 200)) }, nameText(a))))
    this.agents.value = filter.agent
    this.thread.hidden = !filter.thread
    show(this.thread, icon('thread'), t('thread.left'), ' ×')
    show(this.count, !isEverything(filter) && t('found', { n: number(found) }))
  }

  // set changes parts of the filter.
  set(parts) {
    clearTimeout(this.#typing)
    const { kind, agent, query, thread } = { ...this.filter, ...parts }
    this.filter = { kind, agent, query, thread }
    if (document.activeElement !== this.input) this.input.value = query
    this.changed(this.filter)
  }

  // reset shows everything again, and returns whether that was a change.
  reset() {
    this.input.value = ''
    if (isEverything(this.filter)) return false
    this.set(everything())
    return true
  }
}
