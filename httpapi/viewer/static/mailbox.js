// The section of the mailbox: tasks, what waits for the bot, what could not be
// delivered.

import * as api from './api.js'
import { h, show } from './h.js'
import { t, explain } from './i18n.js'
import { number } from './format.js'
import { body, line, cut } from './text.js'
import { age } from './age.js'
import { botName } from './person.js'
import { Panel, orOff } from './panel.js'
import { notice } from './notice.js'
import { empty } from './empty.js'

const tabs = ['tasks', 'inbox', 'dead']
const RESULT = 20_000 // characters of a result
const SHOWN = 200 // rows; of more only the newest are shown

const ENDED = new Set(['completed', 'failed', 'rejected']) // states of a task after which none comes

// How a task's state is coloured.
const colours = { completed: 'pass', failed: 'stop', rejected: 'stop', pending: 'wait', accepted: 'wait', working: 'own' }

export class Mailbox extends Panel {
  #tab = 'tasks'
  #asking // id of the dead letter that is about to be sent again

  async load() {
    const [tasks, inbox, dead, status] = await Promise.all([orOff(api.tasks()), orOff(api.inbox()), orOff(api.deadLetters()), api.status()])
    return { off: !tasks, tasks: tasks?.tasks ?? [], inbox: inbox ?? { messages: [], total: 0 }, dead: dead?.dead_letters ?? [], self: status.identity.agent_name }
  }

  draw() {
    const { off, tasks, inbox, dead } = this.data
    const header = h('header', null, h('h2', null, t('mailbox')))
    if (off) return show(this.element, header, h('div', { 'data-testid': 'mailbox-off' }, empty('mailbox.off', 'MAILBOX=on feishu-relay run')))
    const counts = { tasks: tasks.length, inbox: inbox.total, dead: dead.length }
    show(this.element, header,
      h('div', { class: 'tabs', role: 'tablist', onkeydown: (e) => this.#key(e) }, tabs.map((tab) => h('button', {
        type: 'button', role: 'tab', id: 'tab-' + tab, 'aria-controls': 'tabpanel', 'aria-selected': String(tab === this.#tab), tabindex: tab === this.#tab ? '0' : '-1', 'data-testid': 'tab-' + tab, onclick: () => this.#go(tab),
      }, t('tab.' + tab), ' ', h('span', { class: 'count' }, number(counts[tab]))))),
      h('div', { role: 'tabpanel', id: 'tabpanel', 'aria-labelledby': 'tab-' + this.#tab }, this['draw_' + this.#tab]()))
  }

  #go(tab) {
    this.#tab = tab
    this.draw()
    this.element.querySelector(`#tab-${tab}`).focus()
  }

  #key(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key]
    if (by) this.#go(tabs.at((tabs.indexOf(this.#tab) + by) % tabs.length))
  }

  draw_tasks() {
    const { tasks, self } = this.data
    if (!tasks.length) return empty('empty.tasks', 'feishu-relay mailbox send --type task AGENT "write a test"')
    return list(tasks, (task) => {
      const [from, to] = task.direction === 'sent' ? [self, task.peer] : [task.peer, self]
      return h('li', { 'data-testid': 'task', 'data-task-id': task.id, 'data-state': task.state },
        h('div', { class: 'title' }, state(task.state), h('span', null, way(from, to)), h('span', { class: 'soft' }, t('direction.' + task.direction)), h('span', { class: 'far soft' }, age(task.updated_at))),
        task.text && h('p', { dir: 'auto' }, line(task.text, 300)),
        (task.result || task.reason) && h('div', { class: 'result', 'data-testid': 'result' }, h('b', null, t(task.result ? 'result' : 'task.because'), t('colon')), body(cut(task.result || task.reason, RESULT))),
        h('div', { class: 'soft' }, h('span', { class: 'mono' }, cut(task.id, 80)), task.deadline && !ENDED.has(task.state) && [' · ', t('deadline'), ' ', age(task.deadline)], task.overdue && [' · ', h('b', { class: 'stop' }, t('overdue'))]))
    })
  }

  draw_inbox() {
    const { messages, total } = this.data.inbox
    if (!messages.length) return empty('empty.inbox')
    return [
      list(messages, (m) => h('li', { 'data-testid': 'mail', 'data-mail-id': m.id },
        h('div', { class: 'title' }, h('span', { class: 'tag' }, m.type), h('span', null, way(m.from, m.to)), h('span', { class: 'soft' }, t('priority', { n: m.priority })), h('span', { class: 'far soft' }, age(m.timestamp))),
        h('p', { dir: 'auto' }, line(textOf(m), 300)),
        h('div', { class: 'soft mono' }, cut(m.id, 100)))),
      total > messages.length && h('p', { class: 'soft' }, t('more.wait', { n: number(total - messages.length) })),
    ]
  }

  draw_dead() {
    const { dead } = this.data
    if (!dead.length) return empty('empty.dead')
    return list(dead, (d) => h('li', { 'data-testid': 'dead-letter', 'data-mail-id': d.id },
      h('div', { class: 'title' }, h('span', { class: 'state', 'data-state': 'stop', title: explain(d.code) }, d.code), h('span', null, way(d.envelope.from, d.envelope.to)), h('span', { class: 'soft' }, d.envelope.type), h('span', { class: 'far soft' }, age(d.dead_at))),
      h('p', { dir: 'auto' }, line(textOf(d.envelope), 300)),
      h('p', { class: 'reason', dir: 'auto' }, line(d.reason, 300)),
      h('div', { class: 'foot' }, h('span', { class: 'soft' }, h('span', { class: 'mono' }, cut(d.id, 100)), ' · ', t('attempts', { n: number(d.attempts) })), this.#replayButtons(d.id))))
  }

  // replayButtons asks once more before a letter goes out.
  #replayButtons(id) {
    const ask = (next) => () => ((this.#asking = next), this.redraw())
    if (this.#asking !== id) return h('div', { class: 'buttons' }, h('button', { type: 'button', 'data-testid': 'replay', onclick: ask(id) }, t('replay')))
    return h('div', { class: 'buttons', role: 'group', 'aria-label': t('replay.sure') }, h('span', null, t('replay.sure')),
      h('button', { type: 'button', class: 'primary', 'data-testid': 'replay-yes', onclick: () => this.#replay(id) }, t('replay.yes')),
      h('button', { type: 'button', onclick: ask(undefined) }, t('cancel')))
  }

  async #replay(id) {
    this.#asking = undefined
    try {
      await api.replay(id)
      notice(t('replayed'))
    } catch (error) {
      notice(error.message, 'fault')
    }
    this.text = undefined
    this.refresh()
  }
}

const list = (rows, row) => [
  h('ul', { class: 'rows' }, rows.slice(0, SHOWN).map(row)),
  rows.length > SHOWN && h('p', { class: 'soft' }, t('more.rows', { n: number(rows.length - SHOWN) })),
]
const way = (from, to) => [botName(from), ' → ', to === '*' ? t('everybody') : botName(to)]
const state = (name) => h('span', { class: 'state', 'data-state': colours[name] ?? 'skip', title: explain(name) }, t('task.' + name))

// textOf is the text of an envelope, or what stands for it.
function textOf({ content }) {
  const parts = content?.parts ?? []
  return parts.map((p) => (p.type === 'text' ? p.text : p.type === 'file' ? p.path : JSON.stringify(p.data))).join(' ')
}
